/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The packets of a flow that is known. fwd is what the look-up of the flow gave: see ct_find_fwd. */
#pragma once
#include "midflow.h"
#include "open.h"

/* Revokes the permission of a flow that is not TCP. Its entry stays until it expires, so that an answer that is still
 * on its way does not open the flow again from the other end. */
static __always_inline void forbid(struct ct_entry *e)
{
	e->egress = e->ingress = 0;
	e->state |= CT_ONE_WAY;
}

/* Updates a flow that one side does not allow, and returns the drop reason for its packet. A TCP flow that was
 * allowed before stays on record as revoked, so that both ends get a reset. */
static __always_inline int refused(const struct pkt *p, struct ct_entry *e, int stamp)
{
	if (stamp != STAMP_REVOKED)
		return stamp == STAMP_MISSING ? -DROP_NO_TABLE : -DROP_POLICY;
	if (p->t.proto == PROTO_TCP)
		e->state |= CT_REVOKED;
	else
		forbid(e);
	return -DROP_REVOKED;
}

/* A SYN on a known flow opens a new connection, unless it is a retransmission. An echo request of another code than the one that was judged
 * does, too: policy is about the code, and the ends are the same. */
static __always_inline bool reopens(const struct pkt *p, const struct ct_entry *e, __u32 fwd)
{
	if (p->t.proto != PROTO_TCP)
		return is_icmp(&p->t) && p->l4 != e->l4 && fwd_from_opener(fwd, e);
	if (!is_syn(p))
		return false;
	return e->state || (e->flags & (CT_TRANSLATED | CT_MIDFLOW)) || !fwd_from_opener(fwd, e);
}

/* A flow to a Service, or of a pod to itself behind one, ends with a RST: the kernel forgets the backend soon after,
 * and may choose another for later packets (D-21). */
static __always_inline bool is_over(const struct ct_entry *e)
{
	return (e->state & CT_RST) && (e->flags & (CT_TRANSLATED | CT_SELF));
}

/* Whether kube-proxy may choose another destination for this packet than the one that was judged. It chooses
 * whenever the kernel's conntrack creates an entry. This concerns translated flows, and packets of a pod that has
 * reached itself through a Service, its answers included. */
static __always_inline bool may_move(struct endpoint *ep, const struct pkt *p, const struct ct_entry *e, __u32 fwd)
{
	if (!(e->flags & (CT_TRANSLATED | CT_SELF)))
		return false;
	return e->flags & CT_SELF ? !owns(ep, &p->t, true) : fwd_from_opener(fwd, e);
}

/* With both sides known, the whole verdict of a shortcut flow is reached at the sender: the peer's side too. */
static __always_inline int across(struct endpoint *ep, struct pkt *p, struct ct_entry *e, __u32 fwd, __u32 len)
{
	bool orig = fwd_from_opener(fwd, e);
	struct endpoint *peer = ready_endpoint(p->peer_if);
	int r;

	if (!peer || !owns(peer, &p->t, true) || p->flags)
		return PASS;
	r = side_allowed(peer, p, e, orig, !orig, len);
	if (r == STAMP_OK)
		return PASS_SHORTCUT;
	if (r == STAMP_OTHERS)
		return PASS; /* to_pod judges it as the first packet of a flow */
	p->peer_denied = 1;
	return refused(p, e, r);
}

/* Whether a packet to a pod is of a connection that somebody has opened to it, by the kernel's conntrack, and has got the node's address
 * on the way. */
static __always_inline bool masqueraded(struct __sk_buff *skb)
{
	unsigned long nfct = nfct_at_tc(skb);
	enum kernel_ct word = kernel_ct(nfct);

	return (word == KERNEL_CT_NEW || word == KERNEL_CT_ORIGINAL) && (kernel_entry(nfct)->status & IPS_SRC_NAT);
}

/* Whether a pod sends against a flow of which nothing was let in to it: its policy has allowed none of the flow's packets, so
 * this is no answer, and the flow of the other side says nothing about it. Where the opener was a guess that proved wrong, the
 * pod has sent in the flow before. */
static __always_inline bool answers_nothing(const struct pkt *p, const struct ct_entry *e, __u32 fwd)
{
	return !e->responder_if && !(e->state & CT_REPLIED) && !(e->flags & CT_SELF) && !fwd_from_opener(fwd, e);
}

/* Whether the source of a packet is an endpoint of this node. */
__noinline int from_endpoint(const struct pkt *p)
{
	struct addr_info info;

	return p && addr_lookup(p->t.family, p->t.src, &info) && (info.flags & ADDR_ENDPOINT);
}

/* Whether a packet to a pod has the ends of a flow that is another one: one of the two is the node's, or the pod's own that came
 * back by a Service (D-16), or one that the pod has opened to its node; the other is somebody else's. A node that masquerades may give
 * them the same port, one after the other. So has one of a pod of this node to which nothing of the flow was let in: its own flow was
 * allowed to it at its hook, and the other end has opened this one since. */
static __always_inline bool ends_of_another(struct __sk_buff *skb, const struct endpoint *ep, const struct pkt *p,
					    const struct ct_entry *e, __u32 fwd)
{
	bool own;

	if (made_here(skb, p))
		return false;
	own = from_itself(skb, ep, p);
	if (e->flags & CT_FROM_HOST)
		return fwd_from_opener(fwd, e);
	if (own == !!(e->flags & CT_SELF)) {
		if (e->flags & CT_TRANSLATED)
			return !fwd_from_opener(fwd, e) && masqueraded(skb);
		return answers_nothing(p, e, fwd) && from_endpoint(p);
	}
	return !own || !has_further_source(ep, &p->t);
}

/* Whether a datagram travels against a flow that this side never allowed, and so may open a flow of its own:
 * attempts of the other side must not keep this side from using the same ends. TCP flows are opened by a SYN only,
 * and flows that were revoked by their opener only. */
static __always_inline bool opens_other_way(const struct pkt *p, const struct ct_entry *e, __u32 fwd)
{
	return p->t.proto != PROTO_TCP && !(e->state & CT_ONE_WAY) && !fwd_from_opener(fwd, e);
}

/* A packet that keeps its flow, given its entry. Revoked flows stay revoked until a SYN opens them again. */
static __always_inline int tracked(struct __sk_buff *skb, struct endpoint *ep, struct pkt *p, struct ct_entry *e,
				   __u32 fwd, enum hook hook)
{
	bool orig = fwd_from_opener(fwd, e), egress = (hook == FROM_POD) == orig;
	int r;

	if (e->state & CT_REVOKED)
		return -DROP_REVOKED;
	r = side_allowed(ep, p, e, orig, egress, skb->len);
	if (r == STAMP_DENIED && (e->flags & CT_MIDFLOW)) {
		r = turn_guess(skb, ep, p, e, hook);
		orig = fwd_from_opener(fwd, e);
	}
	if (r == STAMP_OK) {
		ct_update(p, e, orig);
		return PASS;
	}
	return r == STAMP_OTHERS ? IS_OF_FORMER : refused(p, e, r);
}
