/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What makes numbers of generations free: programs that walk over the flow maps before generations begin again from the first one.
 * They change stamps that are not in force, and nothing else. */
#pragma once
#include "policy.h"
#include "walk.h"

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

/* Replaces both stamps of a flow, which stays. */
static __always_inline bool restamp_both(__u8 proto, __u8 family, struct ct_entry *e)
{
	restamp(&e->egress, e->opener_if, true);
	restamp(&e->ingress, e->responder_if, false);
	return false;
}

static __always_inline void restamp_end(void)
{
}

WALK_PROGRAM(restamp4, 4, restamp_both, restamp_end)
WALK_PROGRAM(restamp6, 6, restamp_both, restamp_end)
