/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The first packet of a flow, those that follow, and those in mid-flow. Each step returns a decision: 0 pass, -DROP_x, or
 * one of the positive values below. */
#pragma once
#include "parse.h"
#include "policy.h"

enum decision {
	PASS = 0,
	PASS_PENDING = 1,  /* pass, marked for judgement after translation */
	PASS_SHORTCUT = 2, /* both sides allow: straight to the peer */
	IS_MIDFLOW = 3,    /* a TCP packet that opens nothing, and no flow: see midflow() */
};

/* A flow without connections loses its permission. It stays known until it expires, so that an answer that is still under
 * way is one, and does not open the flow anew from the other end. */
static __always_inline void forbid(struct ct_entry *e)
{
	e->egress = e->ingress = 0;
	e->state |= CT_ONE_WAY;
}

/* What becomes of a flow, and of its packet, that one side does not allow. A TCP flow that was allowed once stays known, so
 * that both ends hear that it is over. */
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

/* A packet that keeps its flow, given its entry. Revoked flows stay revoked until they are opened anew. */
static __always_inline int tracked(struct endpoint *ep, struct pkt *p, struct ct_entry *e, enum hook hook, __u32 len)
{
	bool orig = from_opener(&p->t, e), egress = (hook == FROM_POD) == orig;
	int r;

	if (e->state & CT_REVOKED)
		return -DROP_REVOKED;
	r = side_allowed(ep, p, e, orig, egress, len);
	if (r != STAMP_OK && (e->flags & CT_MIDFLOW) && r == STAMP_DENIED) {
		/* The guess of who opened it does not suit this side: try the other way round. The first side is asked
		 * again at its next packet, and if that does not suit it then neither way is allowed: no third guess. */
		struct ct_entry turned = *e;

		turned.flags ^= CT_OPENER_B | CT_MIDFLOW;
		turned.state |= CT_REPLIED;
		turned.l4 = orig ? p->t.sport : p->t.dport;
		turned.egress = turned.ingress = 0;
		turned.opener_if = turned.responder_if = 0;
		if (check_side(ep, p, &turned, !orig | (!egress) << 1 | len << 2) == STAMP_OK) {
			*e = turned;
			orig = !orig;
			r = STAMP_OK;
		}
	}
	if (r == STAMP_OK) {
		ct_update(p, e, orig);
		return PASS;
	}
	return refused(p, e, r);
}

/* An echo reply nobody asked for is judged like any message, but is the start of nothing. */
static __always_inline bool opens_flow(const struct pkt *p)
{
	return p->t.proto != (p->t.family == 4 ? PROTO_ICMP : PROTO_ICMPV6) || !icmp_is_echo_reply(p->t.family, p->l4 >> 8);
}

static __always_inline void new_flow(struct flow *f, const struct pkt *p, bool src_opens, __u32 len)
{
	f->t = p->t;
	f->l4 = p->l4;
	f->len = len > 65535 ? 65535 : len;
	f->missing = 0;
	if (!src_opens) {
		__builtin_memcpy(f->t.src, p->t.dst, 16);
		__builtin_memcpy(f->t.dst, p->t.src, 16);
		f->t.sport = p->t.dport;
		f->t.dport = f->l4 = p->t.sport;
	}
}

/* A TCP packet without a flow that opens none: after a restart without maps, or an eviction. It passes if policy
 * allows its direction, or the other one as the opener's; then the flow is known again. */
__noinline int midflow(struct endpoint *ep, struct pkt *p, __u32 hook, __u32 len)
{
	struct ct_entry e;
	struct flow f;
	__u32 gen;

	if (!ep || !p)
		return -DROP_MIDFLOW;
	if (cfg.strict)
		return -DROP_MIDFLOW;
	for (int turn = 0; turn < 2; turn++) {
		bool src_opens = !turn, egress = (hook == FROM_POD) == src_opens;

		new_flow(&f, p, src_opens, len);
		gen = judge_side(ep, &f, egress, EVENT_REJUDGED);
		if (!gen)
			continue;
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
		ct_create(&p->t, &e);
		return PASS;
	}
	return -DROP_MIDFLOW;
}

/* The first packet of a flow, from the pod. */
__noinline int opened_from_pod(struct endpoint *ep, struct pkt *p, __u32 len)
{
	struct endpoint *peer = NULL;
	struct addr_info *to;
	struct ct_entry e;
	struct flow f;

	if (!ep || !p)
		return -DROP_POLICY;
	to = addr_lookup(p->t.family, p->t.dst);
	if (to && (to->flags & (ADDR_MAY_TRANSLATE | ADDR_HOST)))
		return PASS_PENDING;
	if (p->t.proto == PROTO_TCP && (p->tcp & (TCP_SYN | TCP_ACK)) != TCP_SYN)
		return IS_MIDFLOW;
	ct_init(&e, &p->t, p->l4, true);
	e.opener_if = ep->ifindex;
	if (owns(ep, &p->t, true)) {
		e.flags |= CT_SELF;
		ct_create(&p->t, &e);
		return PASS;
	}
	new_flow(&f, p, true, len);
	if (cfg.shortcut && to && (to->flags & ADDR_ENDPOINT)) {
		e.responder_if = to->ifindex;
		peer = ready_endpoint(to->ifindex);
	}
	e.egress = judge_side(ep, &f, 1, 0);
	if (!e.egress)
		return denied(&f);
	if (peer && peer->peer_ifindex && owns(peer, &p->t, true) && !p->flags) {
		p->peer_if = to->ifindex;
		e.ingress = judge_side(peer, &f, 0, 0);
		if (!e.ingress) {
			p->peer_denied = 1;
			return denied(&f);
		}
		e.flags |= CT_SHORTCUT;
	}
	if (!opens_flow(p))
		return PASS;
	ct_create(&p->t, &e);
	return e.flags & CT_SHORTCUT ? PASS_SHORTCUT : PASS;
}

/* Whether a packet to a pod comes from this node itself: by no interface. Fragments the node cuts on the way have come by
 * one that IPv6 does not note in them, so those must have a socket too. */
static __always_inline bool made_here(struct __sk_buff *skb, const struct pkt *p)
{
	if (skb->ingress_ifindex)
		return false;
	return !(p->flags & (PKT_FIRST_FRAGMENT | PKT_LATER_FRAGMENT)) || skb->sk;
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
		/* An answer of this node to a connection whose entry is gone: the pod opened it, not the node. */
		if (p->t.proto == PROTO_TCP && (p->tcp & (TCP_SYN | TCP_ACK)) == (TCP_SYN | TCP_ACK))
			return PASS;
		e.flags |= CT_FROM_HOST;
	} else if (skb->ingress_ifindex == ep->ifindex) {
		e.flags |= CT_SELF;
	} else {
		if (p->t.proto == PROTO_TCP && (p->tcp & (TCP_SYN | TCP_ACK)) != TCP_SYN) {
			struct addr_info *from = addr_lookup(p->t.family, p->t.src);

			/* An answer from a Service address: which backend gave it only the opener's next packet can tell,
			 * so let it provoke one. It opens nothing. */
			if (!cfg.strict && from && (from->flags & ADDR_MAY_TRANSLATE))
				return PASS;
			return IS_MIDFLOW;
		}
		new_flow(&f, p, true, skb->len);
		e.ingress = judge_side(ep, &f, 0, 0);
		if (!e.ingress)
			return denied(&f);
	}
	if (opens_flow(p))
		ct_create(&p->t, &e);
	return PASS;
}
