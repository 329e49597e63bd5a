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
	PASS_WATCHED = 4,  /* pass; marked for judgement if the kernel's conntrack begins an entry with it */
};

/* A flow without connections loses its permission. It stays known until it expires, so that an answer that is still under
 * way is one, and does not open the flow again from the other end. */
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

/* An echo reply without a request is judged like any message, but is the start of nothing. */
static __always_inline bool opens_flow(const struct pkt *p)
{
	return p->t.proto != (p->t.family == 4 ? PROTO_ICMP : PROTO_ICMPV6) ||
	       !icmp_is_echo_reply(p->t.family, p->l4 >> 8);
}

/* A flow with the ends of a packet, opened by its source or, if not src_opens, by its destination. l4 is what policy judges
 * of a packet of its opener; of an answer it is the port answered from, or the echo request answered. */
static __always_inline void flow_of_ends(struct flow *f, const struct tuple *t, __u16 l4, bool src_opens, __u32 len)
{
	f->t = *t;
	f->l4 = l4;
	f->len = len > 65535 ? 65535 : len;
	f->missing = 0;
	if (!src_opens) {
		__builtin_memcpy(f->t.src, t->dst, 16);
		__builtin_memcpy(f->t.dst, t->src, 16);
		f->t.sport = t->dport;
		f->t.dport = t->sport;
		if (has_ports(t->proto))
			f->l4 = t->sport;
		else if (t->proto == (t->family == 4 ? PROTO_ICMP : PROTO_ICMPV6) &&
			 icmp_is_echo_reply(t->family, l4 >> 8))
			f->l4 = t->family == 4 ? 8 << 8 : 128 << 8;
	}
}

static __always_inline bool is_syn(const struct pkt *p)
{
	return (p->tcp & (TCP_SYN | TCP_ACK)) == TCP_SYN;
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
	if (cfg.strict && p->t.proto == PROTO_TCP && !is_syn(p))
		return -DROP_MIDFLOW;
	to = addr_lookup(p->t.family, p->t.dst);
	if (to && (to->flags & (ADDR_MAY_TRANSLATE | ADDR_HOST)))
		return PASS_PENDING;
	if (p->t.proto == PROTO_TCP && !is_syn(p))
		return IS_MIDFLOW;
	ct_init(&e, &p->t, p->l4, true);
	e.opener_if = ep->ifindex;
	if (owns(ep, &p->t, true)) {
		e.flags |= CT_SELF;
		ct_create(&p->t, &e);
		return PASS;
	}
	flow_of_ends(&f, &p->t, p->l4, true, len);
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
		/* Of TCP only a SYN says that it was the node that opened (D-20). Who opened what is under way, the pod's
		 * answer will be asked: the kernel's conntrack knows. */
		if (p->t.proto == PROTO_TCP && !is_syn(p))
			return PASS;
		/* Other ICMP has no answers: the pod's message of the same type would pass for one. */
		if (p->t.proto == (p->t.family == 4 ? PROTO_ICMP : PROTO_ICMPV6) &&
		    !icmp_is_echo_request(p->t.family, p->l4 >> 8))
			return PASS;
		e.flags |= CT_FROM_HOST;
	} else if (skb->ingress_ifindex == ep->ifindex) {
		e.flags |= CT_SELF;
	} else {
		if (p->t.proto == PROTO_TCP && !is_syn(p))
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
