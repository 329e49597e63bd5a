/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The first packet of a flow: judged, and recorded if it is allowed. */
#pragma once
#include "kernel.h"
#include "source.h"

/* The first packet of a flow, from the pod. */
__noinline int opened_from_pod(struct endpoint *ep, struct pkt *p, __u32 len)
{
	struct endpoint *peer = NULL;
	struct addr_info to;
	struct ct_entry e;
	struct flow f;

	if (!ep || !p)
		return -DROP_POLICY;
	if (cfg.strict_mid_flow && is_tcp_midway(p))
		return -DROP_MIDFLOW;
	if (addr_lookup(p->t.family, p->t.dst, &to) && (to.flags & (ADDR_MAY_TRANSLATE | ADDR_HOST)))
		return PASS_PENDING;
	if (is_tcp_midway(p))
		return IS_MIDFLOW;
	ct_init(&e, &p->t, p->l4, true);
	e.opener_if = ep->ifindex;
	/* From a further source it is not from the pod itself: others have that address, too. */
	if (!(p->flags & PKT_FURTHER_SOURCE) && owns(ep, &p->t, true)) {
		e.flags |= CT_SELF;
		ct_create(&p->t, &e);
		return PASS;
	}
	flow_of_ends(&f, &p->t, p->l4, true, len);
	/* Both ends must be able to send across: of a flow with one half in the stack, the stack drops what it takes for invalid. */
	if (!cfg.no_shortcut && !cfg.end_shortcut && ep->peer_ifindex && (to.flags & ADDR_ENDPOINT))
		peer = ready_endpoint(to.ifindex);
	e.egress = judge_side(ep, &f, 1, 0);
	if (!e.egress)
		return denied(&f);
	/* The ends may be those of a connection to a Service that is alive. The kernel knows it, and gives this one another port. */
	if (peer && peer->peer_ifindex && owns(peer, &p->t, true) && !p->flags) {
		p->peer_if = to.ifindex;
		e.ingress = judge_side(peer, &f, 0, 0);
		if (!e.ingress) {
			p->peer_denied = 1;
			return denied(&f);
		}
		e.responder_if = peer->ifindex;
		e.flags |= CT_SHORTCUT;
	}
	if (!opens_flow(p))
		return PASS;
	ct_create(&p->t, &e);
	return e.flags & CT_SHORTCUT ? PASS_SHORTCUT : PASS;
}

/* Whether a packet to a pod was made by this node: it has come in by no interface. Fragments that the node cuts on
 * the way have none either over IPv6, so a fragment must also have a socket. */
static __always_inline bool made_here(struct __sk_buff *skb, const struct pkt *p)
{
	if (skb->ingress_ifindex)
		return false;
	return !(p->flags & (PKT_FIRST_FRAGMENT | PKT_LATER_FRAGMENT)) || skb->sk;
}

/* Whether a fragment that the node has cut, and that therefore has come by no interface, is of a packet that the pod has sent to itself:
 * the kernel's conntrack knows who has sent it. A further source is no address of the pod. */
__noinline int cut_from_itself(struct __sk_buff *skb, const struct endpoint *ep, const struct pkt *p)
{
	struct tuple from = {};
	unsigned long nfct;

	if (!ep || !p)
		return 0;
	nfct = nfct_at_tc(skb);
	if (kernel_ct(nfct) == KERNEL_CT_NONE)
		return 0;
	from.family = p->t.family;
	if (kernel_ct(nfct) == KERNEL_CT_REPLY)
		KERNEL_ADDR(from.src, kernel_entry(nfct)->tuplehash[1].tuple.src, from.family);
	else
		KERNEL_ADDR(from.src, kernel_entry(nfct)->tuplehash[0].tuple.src, from.family);
	return owns(ep, &from, false);
}

/* Whether a packet to a pod that the node has not made is the pod's own, back from a Service (D-16). */
static __always_inline bool from_itself(struct __sk_buff *skb, const struct endpoint *ep, const struct pkt *p)
{
	return skb->ingress_ifindex ? skb->ingress_ifindex == ep->ifindex : cut_from_itself(skb, ep, p);
}

/* The first packet of a flow, to the pod. Addresses are final. */
__noinline int opened_to_pod(struct __sk_buff *skb, struct endpoint *ep, struct pkt *p)
{
	struct ct_entry e;
	struct flow f;

	if (!ep || !p)
		return -DROP_POLICY;
	ct_init(&e, &p->t, p->l4, true);
	e.responder_if = ep->ifindex;
	if (made_here(skb, p)) {
		/* For TCP only a SYN shows that the node has opened the connection (D-20). For other segments the
		 * opener is found when the pod answers: the kernel's conntrack knows it. */
		if (is_tcp_midway(p))
			return PASS;
		/* Other ICMP messages have no answers. With a flow, the pod's own message of the same type would
		 * pass as one. */
		if (is_icmp(&p->t) && !icmp_is_echo_request(p->t.family, p->l4 >> 8))
			return PASS;
		/* The pod has opened it. After policy has ended the flow and it is not on record any more, the node may still
		 * send. */
		if (kernel_ct(nfct_at_tc(skb)) == KERNEL_CT_REPLY)
			return PASS;
		e.flags |= CT_FROM_HOST;
	} else if (from_itself(skb, ep, p) && !has_further_source(ep, &p->t)) {
		e.flags |= CT_SELF;
	} else {
		if (is_tcp_midway(p))
			return IS_MIDFLOW;
		flow_of_ends(&f, &p->t, p->l4, true, skb->len);
		e.ingress = judge_side(ep, &f, 0, 0);
		if (!e.ingress)
			return denied(&f);
	}
	if (opens_flow(p))
		ct_create(&p->t, &e);
	return PASS;
}
