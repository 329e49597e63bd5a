/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* After kube-proxy's translation: the egress judgement that from_pod put off (D-17), and the guard that closes workload
 * interfaces our TC programs are not on yet (D-18). The few kernel structs read are declared here; CO-RE finds the
 * fields in the running kernel. */
#pragma once
#include <bpf/bpf_core_read.h>
#include "flow.h"

#define NF_DROP 0
#define NF_ACCEPT 1
#define NF_INET_LOCAL_IN 1
#define IP_CT_IS_REPLY 3
#define IFNAMSIZ 16

struct net_device {
	int ifindex;
	char name[IFNAMSIZ];
} __attribute__((preserve_access_index));

struct nf_hook_state {
	__u8 hook;
	__u8 pf;
	struct net_device *in, *out;
} __attribute__((preserve_access_index));

struct sk_buff {
	__u32 len;
	__u32 mark;
	unsigned long _nfct;
} __attribute__((preserve_access_index));

union nf_inet_addr {
	__u32 all[4];
} __attribute__((preserve_access_index));

struct nf_conntrack_man {
	union nf_inet_addr u3;
	union {
		__be16 all;
	} u;
} __attribute__((preserve_access_index));

struct nf_conntrack_tuple {
	struct nf_conntrack_man src;
	struct {
		union nf_inet_addr u3;
		union {
			__be16 all;
		} u;
		__u8 protonum;
	} dst;
} __attribute__((preserve_access_index));

struct nf_conntrack_tuple_hash {
	struct nf_conntrack_tuple tuple;
} __attribute__((preserve_access_index));

struct nf_conn {
	struct nf_conntrack_tuple_hash tuplehash[2];
} __attribute__((preserve_access_index));

struct bpf_nf_ctx {
	const struct nf_hook_state *state;
	struct sk_buff *skb;
};

extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym;

static __always_inline bool is_workload(const struct net_device *dev)
{
	if (!cfg.prefix_len)
		return false;
	for (__u32 i = 0; i < 8; i++) {
		if (i >= cfg.prefix_len)
			return true;
		if (dev->name[i] != (char)cfg.prefix[i])
			return false;
	}
	return true;
}

/* Reads the packet at a netfilter hook: it starts with the network header. */
static __noinline int parse_nf(struct __sk_buff *skb, struct pkt *p, __u32 v6_len)
{
	struct bpf_dynptr dyn;
	struct loader l = { .dyn = &dyn };

	if (!p)
		return -DROP_TRUNCATED;
	__builtin_memset(p, 0, sizeof(*p));
	if (bpf_dynptr_from_skb(skb, 0, &dyn))
		return -DROP_TRUNCATED;
	if (v6_len & 1)
		return parse_ipv6(&l, p, 0, v6_len >> 1);
	return parse_ipv4(&l, p, 0, v6_len >> 1);
}

/* The packet's flow as the pod's TC hooks see it: with the destination the pod used. Returns whether the packet is an
 * answer as the kernel's conntrack sees it. */
static __always_inline bool original_ends(struct sk_buff *skb, const struct pkt *p, struct tuple *t)
{
	unsigned long nfct = skb->_nfct;
	struct nf_conn *ct;

	*t = p->t;
	if (!(nfct & ~7UL))
		return false;
	if ((nfct & 7) >= IP_CT_IS_REPLY)
		return true;
	ct = bpf_rdonly_cast((void *)(nfct & ~7UL), bpf_core_type_id_kernel(struct nf_conn));
	t->dst[0] = ct->tuplehash[0].tuple.dst.u3.all[0];
	if (p->t.family == 6) {
		t->dst[1] = ct->tuplehash[0].tuple.dst.u3.all[1];
		t->dst[2] = ct->tuplehash[0].tuple.dst.u3.all[2];
		t->dst[3] = ct->tuplehash[0].tuple.dst.u3.all[3];
	}
	if (has_ports(p->t.proto))
		t->dport = bpf_ntohs(ct->tuplehash[0].tuple.dst.u.all);
	return false;
}

/* What the last judgement said, if it was about this very backend. */
static __always_inline bool judged_before(struct endpoint *ep, const struct pkt *p, const struct ct_entry *e)
{
	if (!e || (e->state & CT_REVOKED) || !e->egress || e->egress != (__u32)policy_word(ep, true))
		return false;
	if (p->t.proto == PROTO_TCP && (p->tcp & (TCP_SYN | TCP_ACK)) == TCP_SYN)
		return false;
	if (e->flags & CT_SELF)
		return owns(ep, &p->t, true);
	if (!(e->flags & CT_TRANSLATED))
		return false;
	return same_addr((const __u32 *)e->backend, p->t.dst) && e->l4 == p->l4;
}

/* Egress of a packet whose destination may have been translated. The verdict is kept under the original ends, the ones
 * both TC hooks see. */
__noinline int judge_translated(struct endpoint *ep, const struct pkt *p, const struct tuple *orig, __u32 reply_len)
{
	struct ct_entry e, *old;
	struct flow f;

	if (!ep || !p || !orig)
		return -DROP_POLICY;
	if (reply_len & 1) {
		if (owns(ep, &p->t, true))
			return PASS; /* to itself behind a Service */
		/* An answer to a flow opened from outside whose entry is gone: the pod is the responder. */
		new_flow(&f, p, false, reply_len >> 1);
		ct_init(&e, orig, p->l4, false);
		e.flags |= CT_MIDFLOW;
		e.responder_if = ep->ifindex;
		e.ingress = judge_side(ep, &f, 0, EVENT_REJUDGED);
		if (!e.ingress)
			return -DROP_MIDFLOW;
		ct_create(orig, &e);
		return PASS;
	}
	old = ct_find(orig);
	if (judged_before(ep, p, old))
		return PASS;
	new_flow(&f, p, true, reply_len >> 1);
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
		if (old && p->t.proto == PROTO_TCP && !(p->tcp & TCP_SYN))
			old->state |= CT_REVOKED;
		else if (old)
			forbid(old);
		return denied(&f);
	}
	if (old && !(p->tcp & TCP_SYN)) {
		/* Another backend for a flow that goes on: keep what it has reached. */
		e.state = old->state & ~CT_REVOKED;
	}
	ct_create(orig, &e);
	return PASS;
}

static __always_inline int nf_drop(__u32 ifindex, int reason, enum hook hook, __u32 len)
{
	count_drop(ifindex, -reason, hook, len);
	return NF_DROP;
}

/* The put-off egress judgement of one packet. What the node gets from pods ends here if it wants nothing from them: no
 * flow may come of it, or its later packets would pass. */
static __always_inline int judge_pending(struct bpf_nf_ctx *ctx, __u32 ifindex, bool to_host)
{
	struct endpoint *ep = ready_endpoint(ifindex);
	struct sk_buff *skb = ctx->skb;
	struct tuple orig;
	struct pkt p;
	bool reply;
	int r;

	if (!ep)
		return nf_drop(ifindex, -DROP_NO_ENDPOINT, FROM_POD, skb->len);
	r = parse_nf((struct __sk_buff *)skb, &p, skb->len << 1 | (ctx->state->pf == 10));
	if (r)
		return nf_drop(ifindex, r, FROM_POD, skb->len);
	if (p.flags & PKT_LATER_FRAGMENT)
		r = later_fragment(&p, 2);
	else {
		reply = original_ends(skb, &p, &orig);
		if (to_host && cfg.host_drop && !reply)
			return nf_drop(ifindex, -DROP_HOST_ACTION, FROM_POD, skb->len);
		r = judge_translated(ep, &p, &orig, skb->len << 1 | reply);
		if (p.flags & PKT_FIRST_FRAGMENT)
			first_fragment(&p, 2, r);
	}
	if (r < 0)
		return nf_drop(ifindex, r, FROM_POD, skb->len);
	return NF_ACCEPT;
}

/* A workload interface that is no ready endpoint gets nothing. */
static __always_inline bool closed(const struct net_device *out)
{
	return out && is_workload(out) && !ready_endpoint(out->ifindex);
}

/* FORWARD and LOCAL_IN. */
static __always_inline int judge_packet(struct bpf_nf_ctx *ctx)
{
	const struct nf_hook_state *state = ctx->state;
	struct net_device *in = state->in, *out = state->out;
	struct sk_buff *skb = ctx->skb;
	__u32 mark = skb->mark;

	if (!in)
		return NF_ACCEPT;
	if (!(mark & cfg.mark_seen) && is_workload(in))
		return nf_drop(in->ifindex, -DROP_UNSEEN, FROM_POD, skb->len);
	if (state->hook != NF_INET_LOCAL_IN && closed(out))
		return nf_drop(out->ifindex, -DROP_NO_ENDPOINT, TO_POD, skb->len);
	if ((mark & cfg.mark_judge) && is_workload(in))
		return judge_pending(ctx, in->ifindex, state->hook == NF_INET_LOCAL_IN);
	return NF_ACCEPT;
}

/* LOCAL_OUT: this node itself to a pod. */
static __always_inline int guard_packet(struct bpf_nf_ctx *ctx)
{
	struct net_device *out = ctx->state->out;
	__u32 ifindex;

	if (!closed(out))
		return NF_ACCEPT;
	ifindex = out->ifindex;
	return nf_drop(ifindex, -DROP_NO_ENDPOINT, TO_POD, ctx->skb->len);
}
