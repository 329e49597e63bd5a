/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How many open flows an endpoint may have: a share of its own, and beyond that as many as it leaves free in the
 * common pool. So one endpoint gets half of the pool, two get a third each, and every endpoint keeps a share of its own. */
#pragma once
#include "endpoint.h"

/* The share that a flow is charged to: its opener's, or its responder's if the opener is elsewhere. */
static __always_inline __u32 share_of(const struct ct_entry *e)
{
	struct endpoint *ep = endpoint_by_ifindex(e->opener_if ? e->opener_if : e->responder_if);

	return ep ? ep->share & (SHARES - 1) : 0;
}

static __always_inline struct share *share_at(__u32 number)
{
	return bpf_map_lookup_elem(&shares, &number);
}

/* Counts one open flow less. Each step down from above the share also lowers the common count, as each step up
 * raises it. So the common count is the number of flows above the shares, also when several CPUs count at once. */
__noinline int release(__u32 number)
{
	struct share *s = share_at(number), *common = share_at(SHARES);

	if (s && common && (__s32)__sync_fetch_and_add(&s->open, -1) > (__s32)cfg.open_share)
		__sync_fetch_and_add(&common->open, -1);
	return 0;
}

static __always_inline struct half_key *half_at(__u32 place)
{
	__u32 i = place - 1;

	return bpf_map_lookup_elem(&half_keys, &i);
}

/* Empties the place of a flow that is open by now. Otherwise the flow that gets the place next would look this one up,
 * whose entry is no longer in any cache by then. If another CPU gives the place to a new flow between the two steps,
 * that flow is not evicted, as with half_remember. */
static __always_inline void half_forget(const struct ct_entry *e)
{
	struct half_key *h = half_at(*(volatile const __u32 *)&e->place);

	if (h)
		h->family = 0;
}

/* Makes a half-open flow an open one, which is never evicted. If its endpoint has no room for one more, it gets the
 * timeout of an open flow only. */
__noinline int keep(struct ct_entry *e)
{
	struct share *s, *common;
	__s32 open, lent = 0;
	__u32 number;

	if (!e)
		return 0;
	e->state |= CT_OPEN;
	if (e->kept)
		return 0;
	number = share_of(e);
	s = share_at(number);
	common = share_at(SHARES);
	if (!s || !common)
		return 0;
	open = __sync_fetch_and_add(&s->open, 1);
	if (open >= (__s32)cfg.open_share)
		lent = __sync_fetch_and_add(&common->open, 1);
	if ((cfg.flow_quota && open >= (__s32)cfg.flow_quota) ||
	    (open >= (__s32)cfg.open_share && open - (__s32)cfg.open_share >= (__s32)cfg.open_common - lent)) {
		__sync_fetch_and_add(&s->refused, 1);
		return release(number);
	}
	if (__sync_val_compare_and_swap(&e->kept, 0, number + 1))
		return release(number); /* another CPU was faster, or evicts it */
	half_forget(e);
	return 0;
}

/* Takes an entry that is about to be deleted out of the count. Of several CPUs that delete it one does so. */
static __always_inline void let_go(struct ct_entry *e)
{
	__u32 kept = __sync_lock_test_and_set(&e->kept, CT_GONE);

	if (kept && kept != CT_GONE)
		release(kept - 1);
}
