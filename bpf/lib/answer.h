/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Answers of flows to a Service whose record is not confirmed. Of two first packets that are sent at once the kernel may keep one backend
 * and the record have the other (see confirm), so each answer is compared until a packet of the pod confirms the record. */
#pragma once
#include "track.h"

/* Whether answers of a flow are to be compared. Those of a pod to itself are known by the interface: see ends_of_another. */
static __always_inline bool is_unconfirmed(const struct ct_entry *e)
{
	return (e->flags & (CT_TRANSLATED | CT_CONFIRMED)) == CT_TRANSLATED;
}

/* Whether a packet to the pod, of a flow with a backend on record, has come from another one. Before an answer is translated back it
 * has the source that the kernel's entry has for this direction. IPVS translates by a table of its own, so such an entry
 * may also begin with the answer. Where conntrack does not follow a packet there is only the record. f becomes the flow with
 * the backend that the packet comes from. */
__noinline int from_another(struct __sk_buff *skb, const struct pkt *p, const struct ct_entry *e, struct flow *f)
{
	const struct nf_conn *ct;
	unsigned long nfct;
	__u16 port;

	if (!p || !e || !f)
		return 0;
	nfct = nfct_at_tc(skb);
	if (kernel_ct(nfct) == KERNEL_CT_NONE)
		return 0;
	ct = kernel_entry(nfct);
	flow_of_ends(f, &p->t, p->l4, false, skb->len);
	if (kernel_ct(nfct) == KERNEL_CT_REPLY) {
		KERNEL_ADDR(f->t.dst, ct->tuplehash[1].tuple.src, p->t.family);
		port = ct->tuplehash[1].tuple.src.u.all;
	} else if (by_ipvs(bpf_cast_to_kern_ctx(skb))) {
		KERNEL_ADDR(f->t.dst, ct->tuplehash[0].tuple.src, p->t.family);
		port = ct->tuplehash[0].tuple.src.u.all;
	} else {
		return 0;
	}
	f->l4 = e->l4;
	if (has_ports(p->t.proto))
		f->t.dport = f->l4 = bpf_ntohs(port);
	return !same_addr((const __u32 *)e->backend, f->t.dst) || f->l4 != e->l4;
}

/* The flow on record that an ICMP error is about, by one direction of the kernel's entry: that of the pod's packets, whose ends are those
 * that both TC hooks see. NULL: there is none with ports. */
static __always_inline struct ct_entry *record_at(const struct nf_conntrack_tuple *of, __u8 family, struct tuple *ends)
{
	__builtin_memset(ends, 0, sizeof(*ends));
	ends->family = family;
	ends->proto = of->dst.protonum;
	if (!has_ports(ends->proto))
		return NULL;
	KERNEL_ADDR(ends->src, of->src, family);
	KERNEL_ADDR(ends->dst, of->dst, family);
	ends->sport = bpf_ntohs(of->src.u.all);
	ends->dport = bpf_ntohs(of->dst.u.all);
	return ct_find(ends);
}

/* The same for a flow that the pod has opened. */
static __always_inline struct ct_entry *record_of(const struct nf_conn *ct, __u8 family, struct tuple *ends)
{
	return record_at(&ct->tuplehash[0].tuple, family, ends);
}

/* Whether an ICMP error to the pod is about a flow that is not confirmed and that the kernel sends to another backend than the one on
 * record. */
__noinline int error_from_another(struct __sk_buff *skb, const struct pkt *p)
{
	unsigned long nfct = nfct_at_tc(skb);
	const struct nf_conn *ct;
	__u32 from[4] = {};
	struct ct_entry *e;
	struct tuple ends;

	if (!p || kernel_ct(nfct) != KERNEL_CT_REPLY)
		return 0;
	ct = kernel_entry(nfct);
	e = record_of(ct, p->t.family, &ends);
	if (!e || !is_unconfirmed(e))
		return 0;
	KERNEL_ADDR(from, ct->tuplehash[1].tuple.src, p->t.family);
	return !same_addr((const __u32 *)e->backend, from) || e->l4 != bpf_ntohs(ct->tuplehash[1].tuple.src.u.all);
}

/* An answer of a flow that is not confirmed: a decision, or IS_ON_RECORD if the record has the backend that it comes from. Another one is
 * judged, and if policy allows it, recorded. That confirms nothing: of two datagrams at once the kernel may know both backends for a second,
 * and where the pod's packets go is seen by judge only. */
__noinline int answered(struct __sk_buff *skb, struct endpoint *ep, const struct pkt *p, struct ct_entry *e)
{
	struct ct_entry moved;
	struct flow f = {};
	__u32 gen;

	if (!ep || !p || !e || (e->state & CT_REVOKED) || !from_another(skb, p, e, &f))
		return IS_ON_RECORD;
	gen = judge_side(ep, &f, 1, EVENT_REJUDGED | EVENT_TRANSLATED);
	if (gen) {
		ct_update(p, e, false);
		moved = *e;
		moved.flags &= ~CT_CONFIRMED;
		moved.egress = gen;
		moved.opener_if = ep->ifindex;
		moved.l4 = f.l4;
		__builtin_memcpy(moved.backend, f.t.dst, 16);
		ct_rewrite(&p->t, e, &moved);
		return PASS;
	}
	if (f.missing)
		return -DROP_NO_TABLE;
	/* A datagram may be of the backend that is not the kernel's any more, so it says nothing about the flow. */
	if (p->t.proto == PROTO_TCP && ct_is(&p->t, e))
		e->state |= CT_REVOKED;
	return -DROP_REVOKED;
}
