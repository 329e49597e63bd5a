/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Fragments: the first is judged, the others follow it (D-12). Each share of the tables has records of its own, so that no
 * pod's fragments push out those of another. The fragments of a pod are also bounded: see reassembly.h. */
#pragma once
#include "endpoint.h"

/* How long a first fragment counts. */
#define FRAG_SECONDS 30

/* The share that a datagram is charged to: of the pod on this node that sends it, else of the one that it is for. IPv6
 * fragments that the node has cut have come by no interface: then the address says who has sent them. */
__noinline __u32 frag_share(struct __sk_buff *skb, const struct endpoint *ep, const struct pkt *p, __u32 hook)
{
	const struct endpoint *from = NULL;
	struct addr_info info;

	if (!ep || !p)
		return 0;
	if (hook == FROM_POD) {
		from = ep;
	} else if (skb->ingress_ifindex) {
		from = endpoint_by_ifindex(skb->ingress_ifindex);
	} else if (addr_lookup(p->t.family, p->t.src, &info) && (info.flags & ADDR_ENDPOINT)) {
		from = endpoint_by_ifindex(info.ifindex);
	}
	return (from ? from->share : ep->share) & (SHARES - 1);
}

static __always_inline void frag_init(struct fragment *f, const struct pkt *p, __u32 hook)
{
	__builtin_memset(f, 0, sizeof(*f));
	__builtin_memcpy(f->src, p->t.src, 16);
	__builtin_memcpy(f->dst, p->t.dst, 16);
	f->id = p->frag_id;
	f->way = (__u16)p->t.family << 8 | hook;
	/* Of IPv6 the protocol is behind the fragment header of the first one only, if headers are chained: leave it out. */
	f->proto = p->t.family == 4 ? p->t.proto : 0;
	f->seen = clock_now();
}

/* 1 if two records are of the same datagram, else 0. */
static __always_inline __u32 same_datagram(const struct fragment *x, const struct fragment *y)
{
	const __u32 *a = (const __u32 *)x, *b = (const __u32 *)y;
	__u32 differ = 0;

	for (__u32 i = 0; i < offsetof(struct fragment, seen) / 4; i++)
		differ |= a[i] ^ b[i];
	return is_zero(differ);
}

/* The set that a datagram's record is in. Those of a pod's own datagrams are apart: they stay while the datagram is not
 * complete, whatever else comes. */
static __always_inline struct frag_set *frag_set(const struct fragment *f, __u32 share)
{
	const __u32 *src = (const __u32 *)f->src, *dst = (const __u32 *)f->dst;
	__u32 mixed = (src[0] ^ src[3] ^ dst[0] ^ dst[3]) * 0x9e3779b1, i;
	__u32 part = share * 2 + ((f->way & 255) == FROM_POD);

	/* Numbers that follow each other are in different sets. */
	i = part * FRAG_SETS + (((mixed >> 16) + f->id) & (FRAG_SETS - 1));
	return bpf_map_lookup_elem(&frags, &i);
}

/* The place of a datagram's record in its set, or FRAG_WAYS. */
static __always_inline __u32 frag_find(const struct frag_set *s, const struct fragment *f)
{
	__u32 at = FRAG_WAYS;

	for (__u32 i = 0; i < FRAG_WAYS; i++)
		at -= same_datagram(&s->of[i], f) * (FRAG_WAYS - i);
	return at;
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

/* Whether a first fragment that was seen at a time counts no more. */
static __always_inline bool frag_is_old(__u32 seen, __u32 now)
{
	return now - seen > (cfg.hz * FRAG_SECONDS >> 4);
}

/* A later fragment goes where the first one went (D-12). */
__noinline int later_fragment(const struct pkt *p, __u32 share, __u32 hook)
{
	__u32 at, seen = 0, verdict = FRAGMENT_DENIED;
	struct frag_set *s;
	struct fragment f;

	if (!p)
		return -DROP_FRAG_NO_FIRST;
	frag_init(&f, p, hook);
	s = frag_set(&f, share);
	if (!s)
		return -DROP_FRAG_NO_FIRST;
	bpf_spin_lock(&s->lock);
	at = frag_find(s, &f);
	if (at < FRAG_WAYS) {
		seen = s->of[at].seen;
		verdict = s->of[at].verdict;
	}
	bpf_spin_unlock(&s->lock);
	if (at == FRAG_WAYS || verdict == FRAGMENT_UNKNOWN || frag_is_old(seen, f.seen))
		return -DROP_FRAG_NO_FIRST;
	switch (verdict) {
	case FRAGMENT_PASS: return PASS;
	case FRAGMENT_PENDING: return PASS_PENDING;
	case FRAGMENT_WATCHED: return PASS_WATCHED;
	}
	return -DROP_FRAG_DENIED;
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
	f.verdict = fragment_verdict(decision);
	s = frag_set(&f, share);
	if (!s)
		return 0;
	bpf_spin_lock(&s->lock);
	at = frag_find(s, &f);
	if (at == FRAG_WAYS)
		at = s->turn++;
	s->of[at & (FRAG_WAYS - 1)] = f;
	bpf_spin_unlock(&s->lock);
	return 0;
}

/* The two at a TC hook: global, so that the verifier does not walk the code after them for each way through them. */
__noinline int later_at_tc(struct __sk_buff *skb, const struct endpoint *ep, const struct pkt *p, __u32 hook)
{
	return later_fragment(p, frag_share(skb, ep, p, hook), hook);
}

__noinline int first_at_tc(struct __sk_buff *skb, const struct endpoint *ep, const struct pkt *p, __u32 hook,
			   int decision)
{
	return first_fragment(p, frag_share(skb, ep, p, hook), hook, decision);
}
