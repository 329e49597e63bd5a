/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Half-open flows: each endpoint has a ring with the keys of its latest ones. A key that is overwritten there moves
 * to a common ring, and the flow of a key that is overwritten there is evicted. So a flood evicts half-open flows of
 * the one endpoint only that it is charged to. A flow that is open leaves its place; keys of flows that have ended are
 * skipped. */
#pragma once
#include "quota.h"

/* The half-open flow whose key is in this place; NULL: there is none any more. */
static __always_inline struct ct_entry *half_find(const struct half_key *h, __u32 place)
{
	struct ct_entry *e;

	if (h->family == 4) {
		e = bpf_map_lookup_elem(&ct4, h->key);
	} else if (h->family == 6) {
		struct ct6_key k;

		__builtin_memcpy(&k, h, sizeof(k));
		k.pad[2] = 0;
		e = bpf_map_lookup_elem(&ct6, &k);
	} else {
		return NULL;
	}
	return e && e->place == place && !e->kept ? e : NULL;
}

/* Evicts the flow in a place. Returns whether there was one. */
__noinline int half_evict(__u32 place)
{
	struct half_key *h = half_at(place);
	struct ct_entry *e;

	if (!h)
		return 0;
	e = half_find(h, place);
	if (!e || __sync_val_compare_and_swap(&e->kept, 0, CT_GONE))
		return 0;
	if (h->family == 4) {
		bpf_map_delete_elem(&ct4, h->key);
	} else {
		struct ct6_key k;

		__builtin_memcpy(&k, h, sizeof(k));
		k.pad[2] = 0;
		bpf_map_delete_elem(&ct6, &k);
	}
	return 1;
}

/* Gives the flow in a place one in the common ring, and evicts the one that is there. */
__noinline int half_vacate(__u32 place)
{
	struct half_key *h = half_at(place), *to;
	struct share *common = share_at(SHARES);
	struct ct_entry *e;
	__u32 there;

	if (!h || !common)
		return 0;
	e = half_find(h, place);
	if (!e)
		return 0;
	there = 1 + SHARES * cfg.half_share + (__sync_fetch_and_add(&common->begun, 1) & (cfg.half_common - 1));
	if (half_evict(there))
		__sync_fetch_and_add(&common->evicted, 1);
	to = half_at(there);
	if (!to)
		return 0;
	*to = *h;
	e->place = there;
	return 0;
}

/* The next place in the ring of the endpoint that a flow is charged to, vacated. */
static __always_inline __u32 half_place(const struct ct_entry *e)
{
	__u32 number = share_of(e), place;
	struct share *s = share_at(number);

	if (!s || !cfg.half_share)
		return 0;
	place = 1 + number * cfg.half_share + (__sync_fetch_and_add(&s->begun, 1) & (cfg.half_share - 1));
	half_vacate(place);
	return place;
}

/* Puts the key of a new flow into its place. If two CPUs write the same place at once, a whole ring apart, their
 * keys may be mixed up: then those flows are not evicted, and last until they expire. */
static __always_inline int half_remember(const struct half_key *k, __u32 place)
{
	struct half_key *h = half_at(place);

	if (h)
		*h = *k;
	return 0;
}
