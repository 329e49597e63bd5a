/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What happens to a packet at the pod's two hooks: of a known flow, the first of a new one, in mid-flow, an ICMP error,
 * a fragment. Each step returns a decision: 0 pass, -DROP_x, or one of the positive values below. */
#pragma once
#include "parse.h"
#include "policy.h"

enum decision {
	PASS = 0,
	PASS_PENDING = 1,  /* pass, marked for judgement after translation */
	PASS_SHORTCUT = 2, /* both sides allow: straight to the peer */
	IS_MIDFLOW = 3,    /* a TCP packet that opens nothing, and no flow: see midflow() */
};

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
	if (r != STAMP_REVOKED)
		return r == STAMP_MISSING ? -DROP_NO_TABLE : -DROP_POLICY;
	if (p->t.proto == PROTO_TCP)
		e->state |= CT_REVOKED;
	else
		ct_delete(&p->t);
	return -DROP_REVOKED;
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

/* Errors about a shortcut flow go across too: the host stack has not seen that flow, and others drop there what fits no
 * connection (kube-proxy does). stamp is the peer's, egress the side of ours. */
static __always_inline int error_across(const struct pkt *p, __u32 stamp, bool egress)
{
	struct endpoint *peer = ready_endpoint(p->peer_if);

	if (!peer || !owns(peer, &p->t, true) || (p->flags & PKT_FIRST_FRAGMENT))
		return PASS;
	return stamp && stamp == (__u32)policy_word(peer, !egress) ? PASS_SHORTCUT : PASS;
}

/* An ICMP error follows the flow of the packet it quotes; without one it is judged as the ICMP message it is. */
__noinline int icmp_error(struct __sk_buff *skb, struct endpoint *ep, struct pkt *p, __u32 hook)
{
	struct ct_entry *e;
	struct tuple quoted;
	struct flow f;
	bool orig, egress;
	__u32 stamp;
	int err;

	if (!ep || !p)
		return -DROP_POLICY;
	err = parse_quoted(skb, p, &quoted);
	if (err)
		return err;
	/* It is about a packet that this pod sent; or, from the pod, that it received, and goes to who sent that: else any
	 * flow would carry data to everybody. */
	if (!same_addr(quoted.src, p->t.dst) || (hook == FROM_POD && !same_addr(quoted.dst, p->t.src)))
		return -DROP_BAD_HEADER;
	if (hook == TO_POD && (made_here(skb, p) || skb->ingress_ifindex == ep->ifindex))
		return PASS; /* from this node, or from the pod itself (D-16) */
	if (hook == FROM_POD && owns(ep, &p->t, true))
		return PASS;
	e = ct_find(&quoted);
	if (e && !(e->state & CT_REVOKED)) {
		orig = from_opener(&quoted, e);
		egress = (hook == TO_POD) == orig;
		if (e->flags & CT_SELF || (!egress && (e->flags & CT_FROM_HOST)))
			return PASS;
		stamp = egress ? e->egress : e->ingress;
		if (stamp && stamp == (__u32)policy_word(ep, egress)) {
			if (!cfg.shortcut || hook != FROM_POD || !(e->flags & CT_SHORTCUT))
				return PASS;
			p->peer_if = orig ? e->opener_if : e->responder_if;
			return error_across(p, egress ? e->ingress : e->egress, egress);
		}
	}
	new_flow(&f, p, true, skb->len);
	return judge_side(ep, &f, hook == FROM_POD, 0) ? PASS : denied(&f);
}

/* A later fragment goes where the first one went (D-12). */
__noinline int later_fragment(const struct pkt *p, __u32 hook)
{
	struct frag_info *f;

	if (!p)
		return -DROP_FRAG_NO_FIRST;
	if (p->t.family == 4) {
		struct frag4_key k = { .id = p->frag_id, .proto_dir = (__u32)p->t.proto << 8 | hook };

		*(__u32 *)k.src = p->t.src[0];
		*(__u32 *)k.dst = p->t.dst[0];
		f = bpf_map_lookup_elem(&frags4, &k);
	} else {
		/* The protocol is behind the fragment header of the first one only, if headers are chained: leave it out. */
		struct frag6_key k = { .id = p->frag_id, .proto_dir = hook };

		__builtin_memcpy(k.src, p->t.src, 16);
		__builtin_memcpy(k.dst, p->t.dst, 16);
		f = bpf_map_lookup_elem(&frags6, &k);
	}
	if (!f || clock_now() - f->seen > (cfg.hz * 30 >> 4))
		return -DROP_FRAG_NO_FIRST;
	if (!f->allow)
		return -DROP_FRAG_DENIED;
	return f->allow == 2 ? PASS_PENDING : PASS;
}

__noinline int first_fragment(const struct pkt *p, __u32 hook, int decision)
{
	struct frag_info f = { .seen = clock_now(), .allow = decision < 0 ? 0 : decision == PASS_PENDING ? 2 : 1 };

	if (!p)
		return 0;
	if (p->t.family == 4) {
		struct frag4_key k = { .id = p->frag_id, .proto_dir = (__u32)p->t.proto << 8 | hook };

		*(__u32 *)k.src = p->t.src[0];
		*(__u32 *)k.dst = p->t.dst[0];
		return bpf_map_update_elem(&frags4, &k, &f, BPF_ANY);
	} else {
		struct frag6_key k = { .id = p->frag_id, .proto_dir = hook };

		__builtin_memcpy(k.src, p->t.src, 16);
		__builtin_memcpy(k.dst, p->t.dst, 16);
		return bpf_map_update_elem(&frags6, &k, &f, BPF_ANY);
	}
}

/* A SYN on a flow that is there opens a new connection unless it is only sent again. */
static __always_inline bool reopens(const struct pkt *p, const struct ct_entry *e)
{
	if (p->t.proto != PROTO_TCP || (p->tcp & (TCP_SYN | TCP_ACK | TCP_RST)) != TCP_SYN)
		return false;
	return e->state || (e->flags & (CT_TRANSLATED | CT_MIDFLOW)) || !from_opener(&p->t, e);
}

/* Whether kube-proxy may send this packet elsewhere than the one that was judged: datagrams of one flow can get a new
 * backend at any time. So can those of a pod that has met itself behind a Service, and its answers to the address it
 * came from then. Asked only of such flows. */
static __always_inline bool may_move(struct endpoint *ep, const struct pkt *p, const struct ct_entry *e)
{
	if (p->t.proto == PROTO_TCP || !(e->flags & (CT_TRANSLATED | CT_SELF)))
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
	if (r != STAMP_REVOKED)
		return r == STAMP_MISSING ? -DROP_NO_TABLE : -DROP_POLICY;
	if (p->t.proto == PROTO_TCP)
		e->state |= CT_REVOKED;
	else
		ct_delete(&p->t);
	return -DROP_REVOKED;
}

/* Tunnels that pods make would carry packets past the policy of others (semantics §15). */
static __always_inline bool encapsulates(const struct pkt *p)
{
	return cfg.vxlan_port && (p->t.proto == PROTO_IPIP || (p->t.proto == PROTO_UDP && p->t.dport == cfg.vxlan_port));
}

/* A datagram against the direction of a flow that this side never allowed: what the other side tries in vain must not
 * keep this side from opening a flow with the same ends. A TCP flow is opened by a SYN. */
static __always_inline bool opens_other_way(const struct pkt *p, const struct ct_entry *e)
{
	return p->t.proto != PROTO_TCP && !from_opener(&p->t, e);
}

/* The first packet of a flow, or one in mid-flow. */
static __always_inline int opened(struct __sk_buff *skb, struct endpoint *ep, struct pkt *p, enum hook hook)
{
	int r = hook == FROM_POD ? opened_from_pod(ep, p, skb->len) : opened_to_pod(skb, ep, p);

	return r == IS_MIDFLOW ? midflow(ep, p, hook, skb->len) : r;
}

/* No connection is opened, continued or ended by such flags; what receivers make of them differs, so nobody gets them. */
static __always_inline bool absurd(const struct pkt *p)
{
	__u8 f = p->tcp & (TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK);

	if (p->t.proto != PROTO_TCP || (p->flags & PKT_LATER_FRAGMENT))
		return false;
	return !f || ((f & TCP_SYN) && (f & (TCP_FIN | TCP_RST)));
}

static __always_inline int decide(struct __sk_buff *skb, struct endpoint *ep, struct pkt *p, enum hook hook)
{
	struct ct_entry *e;
	bool open;
	int r;

	if (hook == FROM_POD && encapsulates(p))
		return -DROP_ENCAP;
	if (absurd(p))
		return -DROP_CT_INVALID;
	if (p->flags & PKT_LATER_FRAGMENT)
		return later_fragment(p, hook);
	if (p->flags & PKT_ICMP_ERROR)
		return icmp_error(skb, ep, p, hook);
	e = ct_find(&p->t);
	if (!e || reopens(p, e))
		return opened(skb, ep, p, hook);
	if (cfg.shortcut && hook == FROM_POD && (e->flags & CT_SHORTCUT))
		p->peer_if = from_opener(&p->t, e) ? e->responder_if : e->opener_if;
	open = e->state & CT_OPEN;
	r = tracked(ep, p, e, hook, skb->len);
	if (r == -DROP_POLICY && opens_other_way(p, e))
		return opened(skb, ep, p, hook);
	if (r != PASS || hook != FROM_POD)
		return r;
	/* It may have moved to the open map just now, and what we hold be another flow's already. */
	if (!open)
		e = ct_find(&p->t);
	if (e && may_move(ep, p, e))
		return PASS_PENDING;
	return e && p->peer_if ? across(ep, p, e, skb->len) : PASS;
}
