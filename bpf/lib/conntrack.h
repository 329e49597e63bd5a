/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Flows: keys, lookup, creation, state. A new flow is half-open: later ones of its endpoint may evict it (half.h). When
 * the responder has answered and the opener has answered that, it is open: nothing evicts it (quota.h). Entries are
 * changed through the pointer a lookup gave, never by updating an existing key. */
#pragma once
#include <linux/errno.h>
#include "half.h"
#include "packet.h"
#include "quota.h"

/* 1 if a word of the source's address, or if it is the same its port, is lower than the destination's, else 0. Without a
 * branch: the verifier walks every combination of those. */
static __always_inline __u32 is_lower(__u32 src, __u32 dst, const struct tuple *t)
{
	__u64 from = (__u64)src << 16 | t->sport, to = (__u64)dst << 16 | t->dport;

	asm volatile("" : "+r"(from)); /* else the compiler makes a branch of it */
	return (from - to) >> 63;
}

static __always_inline __u32 src_is_a4(const struct tuple *t)
{
	return is_lower(t->src[0], t->dst[0], t);
}

static __always_inline __u32 src_is_a6(const struct tuple *t)
{
	for (int i = 0; i < 3; i++) {
		if (t->src[i] != t->dst[i])
			return t->src[i] < t->dst[i];
	}
	return is_lower(t->src[3], t->dst[3], t);
}

/* Whether the packet's source is end `a` of the normalised key. */
static __always_inline bool src_is_a(const struct tuple *t)
{
	return t->family == 6 ? src_is_a6(t) : src_is_a4(t);
}

/* The end of a key, in whole words: the map's hash reads words, and would stall on bytes that were just stored in
 * smaller parts. */
static __always_inline void key_end(void *ports_of_key, const struct tuple *t, __u32 fwd)
{
	__u32 differ = ((__u32)t->sport ^ t->dport) & -fwd, a = t->dport ^ differ, b = t->sport ^ differ;
	__u32 words[2] = { a | b << 16, t->proto };

	__builtin_memcpy(ports_of_key, words, sizeof(words));
}

/* Makes the key of a flow. Returns whether the source is its end `a`. */
static __always_inline __u32 key4(struct ct4_key *k, const struct tuple *t)
{
	__u32 fwd = src_is_a4(t), differ = (t->src[0] ^ t->dst[0]) & -fwd;

	*(__u32 *)k->a = t->dst[0] ^ differ;
	*(__u32 *)k->b = t->src[0] ^ differ;
	key_end(&k->pa, t, fwd);
	return fwd;
}

static __always_inline __u32 key6(struct ct6_key *k, const struct tuple *t)
{
	__u32 fwd = src_is_a6(t);

	asm volatile("" : "+r"(fwd)); /* one value for the verifier and not one for each way to it */
	__builtin_memcpy(k->a, fwd ? t->src : t->dst, 16);
	__builtin_memcpy(k->b, fwd ? t->dst : t->src, 16);
	key_end(&k->pa, t, fwd);
	return fwd;
}

/* The flow of a packet, or NULL. fwd: whether the packet's source is end `a` of its key. */
static __always_inline struct ct_entry *ct_find_fwd(const struct tuple *t, __u32 *fwd)
{
	struct ct_entry *e;

	if (t->family == 4) {
		struct ct4_key k;

		*fwd = key4(&k, t);
		e = bpf_map_lookup_elem(&ct4, &k);
		KEEP_APART(4);
	} else {
		struct ct6_key k;

		*fwd = key6(&k, t);
		e = bpf_map_lookup_elem(&ct6, &k);
		KEEP_APART(6);
	}
	return e;
}

static __always_inline struct ct_entry *ct_find(const struct tuple *t)
{
	__u32 fwd;

	return ct_find_fwd(t, &fwd);
}

/* Whether an entry that was found before still belongs to these ends. Maps reuse the memory of a deleted entry at
 * once. So this is checked before a permission is written into an entry and again afterwards: otherwise another flow
 * could get the permission. */
__noinline int ct_is(const struct tuple *t, const struct ct_entry *e)
{
	return t && e && ct_find(t) == e;
}

/* Whether a packet travels from the opener to the responder. fwd: as ct_find_fwd gives it. */
static __always_inline bool fwd_from_opener(__u32 fwd, const struct ct_entry *e)
{
	_Static_assert(CT_OPENER_B == 1, "compared with fwd, which is 0 or 1");
	return (fwd ^ e->flags) & CT_OPENER_B;
}

static __always_inline bool from_opener(const struct tuple *t, const struct ct_entry *e)
{
	return fwd_from_opener(src_is_a(t), e);
}

/* A new flow with the ends of a packet, opened by its source or, if not src_opens, by its destination. l4 is what policy
 * judges, for protocols without ports. */
static __always_inline void ct_init(struct ct_entry *e, const struct tuple *t, __u16 l4, bool src_opens)
{
	__builtin_memset(e, 0, sizeof(*e));
	e->seen = clock_now();
	e->l4 = has_ports(t->proto) ? (src_opens ? t->dport : t->sport) : l4;
	if (src_is_a(t) != src_opens)
		e->flags = CT_OPENER_B;
}

#define CT_CONFIRMED_BIT ((__u32)CT_CONFIRMED << 24) /* of the word that ends with the flags */

/* Sets or clears CT_CONFIRMED. Fetching operations are full barriers, which others are not on every machine. */
static __always_inline void set_confirmed(struct ct_entry *e)
{
	_Static_assert(offsetof(struct ct_entry, flags) == offsetof(struct ct_entry, l4) + 3, "flags end the word");
	__u32 before = __sync_fetch_and_or((__u32 *)&e->l4, CT_CONFIRMED_BIT);

	asm volatile("" : : "r"(before));
}

static __always_inline void clear_confirmed(struct ct_entry *e)
{
	__u32 before = __sync_fetch_and_and((__u32 *)&e->l4, ~CT_CONFIRMED_BIT);

	asm volatile("" : : "r"(before));
}

/* Overwrites an entry by a new flow with the same ends, which is not confirmed. Fails if the entry was deleted meanwhile. If
 * another flow got its memory during the copy, that flow is marked as revoked. */
__noinline int ct_rewrite(const struct tuple *t, struct ct_entry *old, const struct ct_entry *e)
{
	if (!t || !old || !e || !ct_is(t, old))
		return -1;
	__builtin_memcpy(old, e, offsetof(struct ct_entry, place));
	clear_confirmed(old); /* after the backend is there: see confirm */
	if (ct_is(t, old))
		return 0;
	old->state |= CT_REVOKED;
	return -1;
}

/* Records a new flow. An entry of an earlier flow with the same ends is taken over in place. Fails only when memory is
 * short; then the flow's next packet is judged again. */
__noinline int ct_create(const struct tuple *t, struct ct_entry *e)
{
	struct half_key k = {};
	struct ct_entry *old;
	long err;

	if (!t || !e)
		return -1;
	e->place = half_place(e);
	k.family = t->family;
	if (t->family == 4) {
		key4((struct ct4_key *)k.key, t);
		err = bpf_map_update_elem(&ct4, k.key, e, BPF_NOEXIST);
	} else {
		struct ct6_key k6;

		key6(&k6, t);
		__builtin_memcpy(k.key, &k6, sizeof(k.key));
		err = bpf_map_update_elem(&ct6, &k6, e, BPF_NOEXIST);
	}
	if (!err)
		return half_remember(&k, e->place);
	old = ct_find(t);
	if (!old)
		return err;
	return ct_rewrite(t, old, e);
}

/* Notes an allowed packet in its flow. Writes only what changes, so that the cache line stays shared. */
static __always_inline void ct_update(const struct pkt *p, struct ct_entry *e, bool orig)
{
	__u32 now = clock_now();

	if (e->seen != now)
		e->seen = now;
	if (p->t.proto == PROTO_TCP) {
		if (p->tcp & (TCP_FIN | TCP_RST))
			e->state |= (p->tcp & TCP_RST) ? CT_RST : orig ? CT_FIN_OPENER : CT_FIN_REPLY;
	} else if (p->t.proto == PROTO_SCTP) {
		if (p->chunk == SCTP_ABORT || p->chunk == SCTP_SHUTDOWN_COMPLETE)
			e->state |= CT_RST;
		else if (p->chunk == SCTP_INIT)
			e->state &= ~CT_RST;
	}
	if (e->state & CT_OPEN)
		return;
	if (!orig) {
		if (!(e->state & CT_REPLIED))
			e->state |= CT_REPLIED;
		return;
	}
	/* The opener has sent again after an answer. A flow of one query and one answer, as of DNS, takes no place
	 * among the open ones. */
	if (!(e->state & CT_REPLIED) || (p->tcp & TCP_SYN) || (e->state & (CT_FIN_OPENER | CT_FIN_REPLY | CT_RST)))
		return;
	keep(e);
}
