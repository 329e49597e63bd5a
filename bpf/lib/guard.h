/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a workload sends that from_pod has not seen, before the kernel's conntrack and reassembly have it (D-18). judge drops it, too, but
 * behind those: it would change what the kernel knows of connections and datagrams of others, and have it send errors to them. One kind of
 * error the kernel sends even before netfilter, so judge drops that where it leaves the node. */
#pragma once
#include "netfilter.h"

/* PRE_ROUTING, before everything else. A packet of a pod with programs has a mark, and one load is all that it costs here. Fragments are
 * still apart, and each has its own mark. */
static __always_inline int guard_packet(struct bpf_nf_ctx *ctx)
{
	const struct net_device *in = ctx->state->in;
	struct sk_buff *skb = ctx->skb;

	if (skb->mark & (cfg.mark_seen | cfg.mark_judge))
		return NF_ACCEPT;
	if (!in || !is_workload(in) || mark_of_unseen(in))
		return NF_ACCEPT;
	return nf_drop(in->ifindex, -DROP_UNSEEN, FROM_POD, skb->len);
}

#define PROTO_ICMP6 58
#define PARAMETER_PROBLEM 4

/* Whether a packet of IPv6 is an error about hop-by-hop options. Not inline, to save stack. */
__noinline int about_options(struct bpf_nf_ctx *ctx)
{
	struct {
		struct ipv6_hdr ip;
		__u8 type, code;
		__be16 csum;
		__u32 pointer;
		struct ipv6_hdr quoted;
	} error;
	struct bpf_dynptr dyn;

	if (bpf_dynptr_from_skb((struct __sk_buff *)ctx->skb, 0, &dyn) ||
	    bpf_dynptr_read(&error, sizeof(error), &dyn, 0, 0))
		return 0;
	return error.type == PARAMETER_PROBLEM && error.quoted.next == 0;
}

/* LOCAL_OUT: whether this node is about to say that it refuses hop-by-hop options. The kernel reads those before any hook, so it may be about
 * a packet that no program has seen, and go to whom a workload has named as its sender. */
static __always_inline bool answers_unseen(struct bpf_nf_ctx *ctx)
{
	const struct nf_hook_state *state = ctx->state;
	const struct ipv6hdr *ip;

	if (state->hook != NF_INET_LOCAL_OUT || state->pf != NFPROTO_IPV6)
		return false;
	ip = bpf_rdonly_cast(ctx->skb->data, bpf_core_type_id_kernel(struct ipv6hdr));
	return ip->nexthdr == PROTO_ICMP6 && about_options(ctx);
}

static __always_inline int drop_answer(struct bpf_nf_ctx *ctx)
{
	const struct net_device *out = ctx->state->out;

	return nf_drop(out ? out->ifindex : 0, -DROP_UNSEEN, TO_POD, ctx->skb->len);
}
