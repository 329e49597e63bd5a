/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What makes numbers of generations free: iterator programs that the agent runs over a flow map before generations begin again
 * from the first one. They change stamps that are not in force, and nothing else. */
#pragma once
#include "policy.h"
#include "sweep.h"

/* Replaces a stamp that is not in force by one that is older than each generation to come: `id` of its endpoint if that endpoint has
 * put it there, and else STAMP_OF_ANOTHER. To check_side it means what it meant before. A packet that is judged meanwhile may
 * put a stamp there that is in force; it stays. */
static __always_inline void restamp(__u32 *at, __u32 ifindex, bool egress)
{
	__u32 stamp = *(volatile __u32 *)at, to = STAMP_OF_ANOTHER, now;
	struct endpoint *ep;

	if (!stamp || (stamp & RESET_AT)) /* the clock of a revoked flow: no generation */
		return;
	ep = endpoint_by_ifindex(ifindex);
	if (ep) {
		now = (__u32)policy_word(ep, egress);
		if (stamp == now)
			return;
		if (stamp >= ep->id && ep->id != now)
			to = ep->id;
	}
	if (stamp != to)
		__sync_val_compare_and_swap(at, stamp, to);
}

/* Whether the walk is to pause, see SWEEP_SLICE. */
static __always_inline int restamp_step(void)
{
	__u32 first = 0;
	struct sweep *walk = bpf_map_lookup_elem(&swept, &first);

	if (!walk)
		return SWEEP_GO_ON;
	if (walk->slice >= SWEEP_SLICE) {
		walk->slice = 0;
		return SWEEP_PAUSE;
	}
	walk->slice++;
	return SWEEP_GO_ON;
}

#define RESTAMP_PROGRAM(name_, map_, key_type_)               \
	SEC("iter/bpf_map_elem")                              \
	int name_(struct bpf_iter__bpf_map_elem *ctx)         \
	{                                                     \
		const key_type_ *key = ctx->key;              \
		struct ct_entry *e = ctx->value;              \
		key_type_ k;                                  \
                                                              \
		if (!key || !e)                               \
			return SWEEP_GO_ON;                   \
		if (restamp_step())                           \
			return SWEEP_PAUSE;                   \
		k = *key;                                     \
		e = bpf_map_lookup_elem(&map_, &k);           \
		if (!e)                                       \
			return SWEEP_GO_ON;                   \
		restamp(&e->egress, e->opener_if, true);      \
		restamp(&e->ingress, e->responder_if, false); \
		return SWEEP_GO_ON;                           \
	}

RESTAMP_PROGRAM(restamp4, ct4, struct ct4_key)
RESTAMP_PROGRAM(restamp6, ct6, struct ct6_key)
