/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What happens to a packet at the pod's two hooks: which of the steps it takes. */
#pragma once
#include "fragment.h"
#include "icmp.h"
#include "midflow.h"
#include "steps.h"

/* A SYN on a flow that is there opens a new connection unless it is only sent again. */
static __always_inline bool reopens(const struct pkt *p, const struct ct_entry *e)
{
	if (p->t.proto != PROTO_TCP || (p->tcp & (TCP_SYN | TCP_ACK | TCP_RST)) != TCP_SYN)
		return false;
	return e->state || (e->flags & (CT_TRANSLATED | CT_MIDFLOW)) || !from_opener(&p->t, e);
}

/* A flow to a Service, or of a pod to itself behind one, ends with a RST: the kernel forgets the backend soon after, and
 * may choose another for what follows (D-21). */
static __always_inline bool is_over(const struct ct_entry *e)
{
	return (e->state & CT_RST) && (e->flags & (CT_TRANSLATED | CT_SELF));
}

/* Whether kube-proxy may send this packet elsewhere than the one that was judged: it does so whenever the kernel's
 * conntrack begins an entry. So it may those of a pod that has met itself behind a Service, and its answers to the
 * address it came from then. */
static __always_inline bool may_move(struct endpoint *ep, const struct pkt *p, const struct ct_entry *e)
{
	if (!(e->flags & (CT_TRANSLATED | CT_SELF)))
		return false;
	return e->flags & CT_SELF ? !owns(ep, &p->t, true) : from_opener(&p->t, e);
}

/* With both sides known, the whole verdict of a shortcut flow is reached at the sender: the peer's side too. */
static __always_inline int across(struct endpoint *ep, struct pkt *p, struct ct_entry *e, __u32 len)
{
	bool orig = from_opener(&p->t, e);
	struct endpoint *peer = ready_endpoint(p->peer_if);
	int r;

	if (!peer || !owns(peer, &p->t, true) || p->flags)
		return PASS;
	r = side_allowed(peer, p, e, orig, !orig, len);
	if (r == STAMP_OK)
		return PASS_SHORTCUT;
	p->peer_denied = 1;
	return refused(p, e, r);
}

/* Tunnels that pods make would carry packets past the policy of others (semantics §15). */
static __always_inline bool encapsulates(const struct pkt *p)
{
	if (!cfg.no_tunnels || p->t.proto == PROTO_TCP)
		return false;
	if (p->t.proto != PROTO_UDP)
		return p->t.proto == PROTO_IPIP || p->t.proto == PROTO_IPV6 || p->t.proto == PROTO_GRE;
	for (int i = 0; i < TUNNEL_PORTS; i++) {
		if (!cfg.tunnel_ports[i])
			break;
		if (p->t.dport == cfg.tunnel_ports[i])
			return true;
	}
	return false;
}

/* A datagram against the direction of a flow that this side never allowed: what the other side tries in vain must not
 * keep this side from opening a flow with the same ends. A TCP flow is opened by a SYN, one that was revoked by its opener
 * only. */
static __always_inline bool opens_other_way(const struct pkt *p, const struct ct_entry *e)
{
	return p->t.proto != PROTO_TCP && !(e->state & CT_ONE_WAY) && !from_opener(&p->t, e);
}

/* The first packet of a flow, or one in mid-flow. */
static __always_inline int opened(struct __sk_buff *skb, struct endpoint *ep, struct pkt *p, enum hook hook)
{
	int r = hook == FROM_POD ? opened_from_pod(ep, p, skb->len) : opened_to_pod(skb, ep, p);

	return r == IS_MIDFLOW ? midflow(skb, ep, p, hook) : r;
}

/* No connection is opened, continued or ended by such flags; what receivers make of them differs, so no receiver gets them. */
static __always_inline bool absurd(const struct pkt *p)
{
	__u8 f = p->tcp & (TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK);

	if (p->t.proto != PROTO_TCP || (p->flags & PKT_LATER_FRAGMENT))
		return false;
	return !f || ((f & TCP_SYN) && (f & (TCP_FIN | TCP_RST)));
}

/* A packet that keeps its flow, given its entry. Revoked flows stay revoked until a SYN opens them again. */
static __always_inline int tracked(struct __sk_buff *skb, struct endpoint *ep, struct pkt *p, struct ct_entry *e,
				   enum hook hook)
{
	bool orig = from_opener(&p->t, e), egress = (hook == FROM_POD) == orig;
	int r;

	if (e->state & CT_REVOKED)
		return -DROP_REVOKED;
	r = side_allowed(ep, p, e, orig, egress, skb->len);
	if (r == STAMP_DENIED && (e->flags & CT_MIDFLOW)) {
		r = turn_guess(skb, ep, p, e, hook);
		orig = from_opener(&p->t, e);
	}
	if (r == STAMP_OK) {
		ct_update(p, e, orig);
		return PASS;
	}
	return refused(p, e, r);
}

static __always_inline int decide(struct __sk_buff *skb, struct endpoint *ep, struct pkt *p, enum hook hook)
{
	struct ct_entry *e;
	int r;

	if (hook == FROM_POD && encapsulates(p))
		return -DROP_ENCAP;
	if (absurd(p))
		return -DROP_CT_INVALID;
	if (p->flags & PKT_LATER_FRAGMENT)
		return later_at_tc(skb, ep, p, hook);
	if (p->flags & PKT_ICMP_ERROR)
		return icmp_error(skb, ep, p, hook);
	e = ct_find(&p->t);
	if (!e || reopens(p, e) || is_over(e))
		return opened(skb, ep, p, hook);
	if (cfg.shortcut && hook == FROM_POD && (e->flags & CT_SHORTCUT))
		p->peer_if = from_opener(&p->t, e) ? e->responder_if : e->opener_if;
	r = tracked(skb, ep, p, e, hook);
	if (r == -DROP_POLICY && opens_other_way(p, e))
		return opened(skb, ep, p, hook);
	if (r != PASS || hook != FROM_POD)
		return r;
	if (may_move(ep, p, e))
		return PASS_WATCHED;
	return p->peer_if ? across(ep, p, e, skb->len) : PASS;
}
