/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Fragments: the first is judged, the others follow it (D-12). Each share of the tables has records of its own, so that no
 * pod's fragments push out those of another. */
#pragma once
#include "endpoint.h"

/* How long a first fragment counts. */
#define FRAG_SECONDS 30

/* The share that a datagram is charged to: of the pod on this node that sends it, else of the one that it is for. IPv6
 * fragments that the node has cut have come by no interface: then the address says who has sent them. */
__noinline __u32 frag_share(struct __sk_buff *skb, const struct endpoint *ep, const struct pkt *p, __u32 hook)
{
	const struct endpoint *from = NULL;
	struct addr_info *info;

	if (!ep || !p)
		return 0;
	if (hook == FROM_POD) {
		from = ep;
	} else if (skb->ingress_ifindex) {
		from = endpoint_by_ifindex(skb->ingress_ifindex);
	} else {
		info = addr_lookup(p->t.family, p->t.src);
		if (info && (info->flags & ADDR_ENDPOINT))
			from = endpoint_by_ifindex(info->ifindex);
	}
	return (from ? from->share : ep->share) & (SHARES - 1);
}

static __always_inline void frag_init(struct fragment *f, const struct pkt *p, __u32 hook)
{
	__builtin_memcpy(f->src, p->t.src, 16);
	__builtin_memcpy(f->dst, p->t.dst, 16);
	f->id = p->frag_id;
	f->way = (__u16)p->t.family << 8 | hook;
	/* Of IPv6 the protocol is behind the fragment header of the first one only, if headers are chained: leave it out. */
	f->proto = p->t.family == 4 ? p->t.proto : 0;
}

static __always_inline bool same_datagram(const struct fragment *x, const struct fragment *y)
{
	const __u32 *a = (const __u32 *)x, *b = (const __u32 *)y;
	__u32 differ = 0;

	/* Without branches, of which the verifier would walk every combination. */
	for (__u32 i = 0; i < offsetof(struct fragment, seen) / 4; i++)
		differ |= a[i] ^ b[i];
	return !differ;
}

static __always_inline struct frag_set *frag_set(const struct fragment *f, __u32 share)
{
	const __u32 *src = (const __u32 *)f->src, *dst = (const __u32 *)f->dst;
	__u32 mixed = (src[0] ^ src[3] ^ dst[0] ^ dst[3]) * 0x9e3779b1, i;

	/* Numbers that follow each other are in different sets. */
	i = share * FRAG_SETS + (((mixed >> 16) + f->id) & (FRAG_SETS - 1));
	return bpf_map_lookup_elem(&frags, &i);
}

/* A later fragment goes where the first one went (D-12). */
__noinline int later_fragment(const struct pkt *p, __u32 share, __u32 hook)
{
	struct fragment f = {};
	struct frag_set *s;

	if (!p)
		return -DROP_FRAG_NO_FIRST;
	frag_init(&f, p, hook);
	s = frag_set(&f, share);
	if (!s)
		return -DROP_FRAG_NO_FIRST;
	for (int i = 0; i < FRAG_WAYS; i++) {
		const struct fragment *first = &s->of[i];

		if (!same_datagram(first, &f))
			continue;
		if (clock_now() - first->seen > (cfg.hz * FRAG_SECONDS >> 4))
			break;
		switch (first->allow) {
		case FRAGMENT_PASS: return PASS;
		case FRAGMENT_PENDING: return PASS_PENDING;
		case FRAGMENT_WATCHED: return PASS_WATCHED;
		}
		return -DROP_FRAG_DENIED;
	}
	return -DROP_FRAG_NO_FIRST;
}

static __always_inline enum fragment_verdict fragment_verdict(int decision)
{
	if (decision < 0)
		return FRAGMENT_DENIED;
	switch (decision) {
	case PASS_PENDING: return FRAGMENT_PENDING;
	case PASS_WATCHED: return FRAGMENT_WATCHED;
	}
	return FRAGMENT_PASS;
}

/* Notes the verdict about a first fragment: in its datagram's place, or in the one whose turn it is. */
__noinline int first_fragment(const struct pkt *p, __u32 share, __u32 hook, int decision)
{
	struct frag_set *s;
	struct fragment f;
	__u32 at;

	if (!p)
		return 0;
	frag_init(&f, p, hook);
	f.seen = clock_now();
	f.allow = fragment_verdict(decision);
	s = frag_set(&f, share);
	if (!s)
		return 0;
	for (at = 0; at < FRAG_WAYS; at++)
		if (same_datagram(&s->of[at], &f))
			break;
	if (at == FRAG_WAYS)
		at = __sync_fetch_and_add(&s->next, 1);
	s->of[at & (FRAG_WAYS - 1)] = f;
	return 0;
}

/* The two at a TC hook: global, so that the verifier does not walk what follows for each way through them. */
__noinline int later_at_tc(struct __sk_buff *skb, const struct endpoint *ep, const struct pkt *p, __u32 hook)
{
	return later_fragment(p, frag_share(skb, ep, p, hook), hook);
}

__noinline int first_at_tc(struct __sk_buff *skb, const struct endpoint *ep, const struct pkt *p, __u32 hook,
			   int decision)
{
	return first_fragment(p, frag_share(skb, ep, p, hook), hook, decision);
}
