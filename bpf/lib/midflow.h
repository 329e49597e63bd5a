/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* TCP in mid-flow: a packet that opens no connection, of a flow that is not known (D-20). It is judged as its
 * sender's own traffic. It is accepted as an answer if the kernel's conntrack says so, or during a grace period
 * after our own flow tables were lost. */
#pragma once
#include "kernel.h"
#include "policy.h"

static __always_inline bool in_grace(void)
{
	__u32 zero = 0;
	struct grace *g = bpf_map_lookup_elem(&midflow_grace, &zero);

	return g && bpf_ktime_get_ns() < g->until;
}

/* Records a flow that one side of ep allows under gen. f is the flow as it was judged. */
static __always_inline int pick_up(struct endpoint *ep, const struct pkt *p, const struct flow *f, __u32 gen,
				   __u32 egress, bool src_opens)
{
	struct ct_entry e;

	if (p->tcp & TCP_RST)
		return PASS;
	ct_init(&e, &p->t, p->l4, src_opens);
	e.flags |= CT_MIDFLOW;
	if (egress) {
		e.egress = gen;
		e.opener_if = ep->ifindex;
	} else {
		e.ingress = gen;
		e.responder_if = ep->ifindex;
	}
	if (!src_opens) {
		e.state = CT_REPLIED;
		if (!same_addr(f->t.dst, p->t.src) || f->l4 != p->t.sport) {
			e.flags |= CT_TRANSLATED;
			e.l4 = f->l4;
			__builtin_memcpy(e.backend, f->t.dst, 16);
		}
	}
	ct_create(&p->t, &e);
	return PASS;
}

__noinline int midflow(struct __sk_buff *skb, struct endpoint *ep, struct pkt *p, __u32 hook)
{
	__u32 egress = hook == FROM_POD, gen;
	unsigned long nfct;
	struct flow f;
	bool grace;

	if (!ep || !p || cfg.strict_mid_flow)
		return -DROP_MIDFLOW;
	nfct = egress ? 0 : nfct_at_tc(skb);
	if (kernel_ct(nfct) == KERNEL_CT_REPLY) {
		/* The pod has opened the connection. Its egress policy is asked about the address and port that the
		 * answers come from before they are translated back. */
		const struct nf_conn *ct = kernel_entry(nfct);

		flow_of_ends(&f, &p->t, p->l4, false, skb->len);
		KERNEL_ADDR(f.t.dst, ct->tuplehash[1].tuple.src, p->t.family);
		f.t.dport = f.l4 = bpf_ntohs(ct->tuplehash[1].tuple.src.u.all);
		gen = judge_side(ep, &f, 1, EVENT_REJUDGED | REPORT_ALLOWED);
		if (gen)
			return pick_up(ep, p, &f, gen, 1, false);
	}
	grace = in_grace();
	flow_of_ends(&f, &p->t, p->l4, true, skb->len);
	gen = judge_side(ep, &f, egress, EVENT_REJUDGED | (egress || grace ? REPORT_ALLOWED : 0));
	if (gen)
		return pick_up(ep, p, &f, gen, egress, true);
	if (grace) {
		flow_of_ends(&f, &p->t, p->l4, false, skb->len);
		gen = judge_side(ep, &f, !egress, EVENT_REJUDGED | (egress ? REPORT_ALLOWED : 0));
		if (gen)
			return pick_up(ep, p, &f, gen, !egress, false);
	}
	/* A packet from the pod may be an answer by the kernel's conntrack, which looks at it after this hook. It does
	 * not know who sends from a further source. */
	return egress && !(p->flags & PKT_FURTHER_SOURCE) ? PASS_PENDING : -DROP_MIDFLOW;
}

/* ep's side does not allow a flow whose opener is a guess: tries the other direction, once. Either the sender of
 * this packet has opened the flow, and is judged as its opener, or the packet is an answer, for which the kernel's
 * conntrack or a grace period must speak. The other side is judged again at its next packet. */
__noinline int turn_guess(struct __sk_buff *skb, struct endpoint *ep, struct pkt *p, struct ct_entry *e, __u32 hook)
{
	struct ct_entry turned;
	bool orig, egress;
	__u32 how;

	if (!ep || !p || !e)
		return STAMP_DENIED;
	orig = from_opener(&p->t, e);
	egress = (hook == FROM_POD) == orig;
	if (orig && !in_grace() && (hook == FROM_POD || kernel_ct(nfct_at_tc(skb)) != KERNEL_CT_REPLY))
		return STAMP_DENIED;
	turned = *e;
	turned.flags = (turned.flags ^ (CT_OPENER_B | CT_MIDFLOW)) & ~CT_CONFIRMED;
	turned.state |= CT_REPLIED;
	turned.l4 = orig ? p->t.sport : p->t.dport;
	turned.egress = turned.ingress = 0;
	turned.opener_if = turned.responder_if = 0;
	how = (orig ? 0 : SIDE_ORIG) | (egress ? 0 : SIDE_EGRESS) | SIDE_COPY;
	if (check_side(ep, &p->t, &turned, how, skb->len) != STAMP_OK)
		return STAMP_DENIED;
	return ct_rewrite(&p->t, e, &turned) ? STAMP_DENIED : STAMP_OK;
}
