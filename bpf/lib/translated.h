/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Judgements after kube-proxy's translation: egress on the backend, and answers of flows that are not known. */
#pragma once
#include "answer.h"
#include "track.h"

/* The packet's ends as the pod's TC hooks see them: with the destination that the pod used, and for an answer with the
 * port that the pod answers from. */
static __always_inline void original_ends(unsigned long nfct, const struct pkt *p, struct tuple *t)
{
	enum kernel_ct word = kernel_ct(nfct);
	bool ports = has_ports(p->t.proto);
	const struct nf_conn *ct;

	*t = p->t;
	if (word == KERNEL_CT_NONE)
		return;
	ct = kernel_entry(nfct);
	if (word == KERNEL_CT_REPLY) {
		KERNEL_ADDR(t->src, ct->tuplehash[1].tuple.src, p->t.family);
		KERNEL_ADDR(t->dst, ct->tuplehash[1].tuple.dst, p->t.family);
		if (ports) {
			t->sport = bpf_ntohs(ct->tuplehash[1].tuple.src.u.all);
			t->dport = bpf_ntohs(ct->tuplehash[1].tuple.dst.u.all);
		}
		return;
	}
	KERNEL_ADDR(t->dst, ct->tuplehash[0].tuple.dst, p->t.family);
	if (ports)
		t->dport = bpf_ntohs(ct->tuplehash[0].tuple.dst.u.all);
}

/* The state of the packet that judge_translated is asked about. */
enum translated_how {
	AGAIN = 1,      /* IPVS has sent it on, and conntrack has seen an answer of this connection */
	UNFOLLOWED = 2, /* conntrack does not follow it, so it is not translated */
	ANSWERED = 4,   /* conntrack has an answered entry, which has translated it */
};

/* Whether the backend on record is the destination that a packet has after translation. */
static __always_inline bool leads_to(struct endpoint *ep, const struct pkt *p, const struct ct_entry *e)
{
	if (e->flags & CT_SELF)
		return owns(ep, &p->t, true);
	if (!(e->flags & CT_TRANSLATED))
		return false;
	return same_addr((const __u32 *)e->backend, p->t.dst) && e->l4 == p->l4;
}

/* Notes that the kernel's entry leads to the backend on record. Another CPU may write another backend at the same time (it clears
 * the bit after that), or give the memory to another flow, so both are looked at again afterwards. */
__noinline int confirm(struct endpoint *ep, const struct pkt *p, const struct tuple *ends, struct ct_entry *e)
{
	if (!ep || !p || !ends || !e || (e->flags & CT_CONFIRMED))
		return 0;
	set_confirmed(e);
	if (!ct_is(ends, e) || !leads_to(ep, p, e))
		clear_confirmed(e);
	return 0;
}

/* Whether an answer of the pod is of a flow on record that somebody else has opened to it and that policy allows. Of a flow that is
 * revoked from_pod passes the reset alone. ends: as both TC hooks see them. */
static __always_inline bool let_in(struct endpoint *ep, const struct pkt *p, const struct tuple *ends,
				   const struct ct_entry *e)
{
	if ((e->flags & (CT_FROM_HOST | CT_SELF)) || from_opener(ends, e))
		return false;
	if (e->state & CT_REVOKED)
		return p->tcp == (TCP_RST | TCP_ACK);
	return e->ingress && (cfg.keep_existing || e->ingress == (__u32)policy_word(ep, false));
}

/* Whether an ICMP error of the pod is about a flow that policy allows: one that was let in, or one of the pod's own to whose backend on
 * record it goes. The kernel's entry is the flow's, and has translated the error, too. */
__noinline int error_follows(struct endpoint *ep, const struct pkt *p, unsigned long nfct)
{
	bool answers = kernel_ct(nfct) == KERNEL_CT_REPLY;
	const struct nf_conn *ct;
	struct ct_entry *e;
	struct tuple ends;

	if (!ep || !p || kernel_ct(nfct) == KERNEL_CT_NONE)
		return 0;
	ct = kernel_entry(nfct);
	e = answers ? record_at(&ct->tuplehash[1].tuple, p->t.family, &ends) : record_of(ct, p->t.family, &ends);
	if (!e || !owns(ep, &ends, false))
		return 0;
	if (answers)
		return let_in(ep, p, &ends, e);
	if (!(e->flags & CT_TRANSLATED) || (e->state & CT_REVOKED))
		return 0;
	if (!e->egress || e->egress != (__u32)policy_word(ep, true))
		return 0;
	return same_addr((const __u32 *)e->backend, p->t.dst) && e->l4 == bpf_ntohs(ct->tuplehash[1].tuple.src.u.all);
}

/* Whether the flow was judged and allowed for this backend, and the connection to it goes on. again: the kernel's
 * conntrack has seen an answer of this connection, so the FINs and RSTs on record are its own, and the reset of a
 * revoked flow goes to the backend that the flow had. */
static __always_inline bool judged_before(struct endpoint *ep, const struct pkt *p, const struct ct_entry *e,
					  bool again)
{
	if (!e)
		return false;
	if (e->state & CT_REVOKED) {
		if (!again || p->t.proto != PROTO_TCP || p->tcp != (TCP_RST | TCP_ACK))
			return false;
	} else if (!e->egress || e->egress != (__u32)policy_word(ep, true)) {
		return false;
	}
	if (!again && (e->state & (CT_RST | CT_FIN_OPENER | CT_FIN_REPLY)))
		return false;
	if (is_syn(p))
		return false;
	return leads_to(ep, p, e);
}

/* Judges a packet that the kernel's conntrack finds an answer, of a flow that is not on record, or goes to somebody whose address was
 * translated: the pod is the responder. A flow that this node has opened needs no policy. For other flows the ingress policy must still
 * allow the opener. ends: as both TC hooks see them. */
__noinline int judge_reply(struct endpoint *ep, const struct pkt *p, const struct tuple *ends, __u32 len, __u32 to_host)
{
	struct ct_entry e, *known;
	struct flow f;

	if (!ep || !p || !ends)
		return -DROP_POLICY;
	known = ct_find(ends);
	if (owns(ep, &p->t, true)) { /* to itself behind a Service */
		if (known && (known->flags & CT_SELF))
			confirm(ep, p, ends, known);
		return PASS;
	}
	if (known && !to_host && let_in(ep, p, ends, known))
		return PASS;
	ct_init(&e, ends, p->l4, false);
	e.flags |= CT_MIDFLOW;
	e.state = CT_REPLIED;
	e.responder_if = ep->ifindex;
	if (to_host) {
		e.flags |= CT_FROM_HOST;
	} else {
		flow_of_ends(&f, ends, p->l4, false, len);
		e.l4 = f.l4;
		e.ingress = judge_side(ep, &f, 0, EVENT_REJUDGED);
		if (!e.ingress)
			return f.missing ? -DROP_NO_TABLE : -DROP_MIDFLOW;
	}
	if (!(p->tcp & TCP_RST) && (!is_icmp(&p->t) || icmp_is_echo_reply(p->t.family, p->l4 >> 8)))
		ct_create(ends, &e);
	return PASS;
}

/* Egress of a packet whose destination may have been translated. The verdict is kept under the original ends, the ones
 * both TC hooks see. how: enum translated_how. */
__noinline int judge_translated(struct endpoint *ep, const struct pkt *p, const struct tuple *orig, __u32 len,
				__u32 how)
{
	struct ct_entry e, *old;
	struct flow f;

	if (!ep || !p || !orig)
		return -DROP_POLICY;
	old = ct_find(orig);
	if (judged_before(ep, p, old, how & AGAIN)) {
		/* An entry that has just begun may lose against another one that leads elsewhere. */
		if (how & ANSWERED)
			confirm(ep, p, orig, old);
		else if (!(how & AGAIN) && (old->flags & CT_CONFIRMED))
			clear_confirmed(old);
		return PASS;
	}
	flow_of_ends(&f, &p->t, p->l4, true, len);
	/* From a further source, in a flow of another one that has it, too: nothing is written into that one's record. */
	if (old && old->opener_if != ep->ifindex && has_further_source(ep, orig))
		return judge_side(ep, &f, 1, EVENT_TRANSLATED) ? PASS : denied(&f);
	/* It goes where it is addressed, and says nothing about the backend of the flow whose ends it has. */
	if ((how & UNFOLLOWED) && old && (old->flags & (CT_TRANSLATED | CT_SELF)) &&
	    !same_addr((const __u32 *)old->backend, p->t.dst))
		return judge_side(ep, &f, 1, 0) ? PASS : denied(&f);
	ct_init(&e, orig, p->l4, true);
	e.opener_if = ep->ifindex;
	e.l4 = p->l4;
	if (owns(ep, &p->t, true)) {
		e.flags |= CT_SELF;
		e.egress = (__u32)policy_word(ep, true);
	} else {
		e.flags |= CT_TRANSLATED;
		__builtin_memcpy(e.backend, p->t.dst, 16);
		e.egress = judge_side(ep, &f, 1, EVENT_TRANSLATED);
	}
	if (!e.egress) {
		bool goes_on = p->t.proto == PROTO_TCP && !(p->tcp & TCP_SYN);

		/* A flow that another one has opened to the pod is not the one that is denied. */
		if (old && from_opener(orig, old) && ct_is(orig, old)) {
			if (goes_on)
				old->state |= CT_REVOKED;
			else
				forbid(old);
		}
		return goes_on && !old && !f.missing ? -DROP_MIDFLOW : denied(&f);
	}
	if (p->tcp & TCP_RST)
		return PASS;
	if (old && !(p->tcp & TCP_SYN) && !(p->t.proto == PROTO_SCTP && p->chunk == SCTP_INIT)) {
		/* A live flow got another backend: keep its state. What begins a connection does not continue one that has ended. */
		e.state = old->state & ~CT_REVOKED;
	}
	if (opens_flow(p))
		ct_create(orig, &e);
	return PASS;
}

/* Whether from_pod has judged a packet to the node as an answer of a flow that somebody else than the node has opened: a client to whom the
 * node has given its address and one of its ports. The kernel's conntrack does not know that flow any more, so the packet is not translated,
 * and the socket of the node at that port receives it. The function is global so that the verifier walks it once. */
__noinline int answers_another(const struct pkt *p)
{
	struct ct_entry *e;

	if (!p)
		return 1;
	e = ct_find(&p->t);
	return e && !(e->flags & CT_FROM_HOST) && !from_opener(&p->t, e);
}
