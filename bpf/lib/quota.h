/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How many flows of one endpoint may be in the open maps, so that none fills them for all others. */
#pragma once
#include "maps.h"
#include "config.h"

/* One more open flow of this interface. Returns what to note in its entry: the interface, or 0 if it is not counted;
 * negative: it has its share already. */
__noinline int charge(__u32 ifindex)
{
	struct open_count zero = {}, *c;

	if (!cfg.open_quota || !ifindex)
		return 0;
	c = bpf_map_lookup_elem(&open_flows, &ifindex);
	if (!c) {
		bpf_map_update_elem(&open_flows, &ifindex, &zero, BPF_NOEXIST);
		c = bpf_map_lookup_elem(&open_flows, &ifindex);
		if (!c)
			return 0;
	}
	if ((__s32)__sync_fetch_and_add(&c->open, 1) < (__s32)cfg.open_quota)
		return ifindex;
	__sync_fetch_and_add(&c->open, -1);
	__sync_fetch_and_add(&c->refused, 1);
	return -1;
}

__noinline int uncharge(__u32 ifindex)
{
	struct open_count *c = bpf_map_lookup_elem(&open_flows, &ifindex);

	if (c)
		__sync_fetch_and_add(&c->open, -1);
	return 0;
}

/* Takes an entry that is about to be deleted out of the count. Of several CPUs that delete it one does so. */
static __always_inline void settle(struct ct_entry *e)
{
	__u32 who;

	if (!e->charged)
		return;
	who = __sync_lock_test_and_set(&e->charged, 0);
	if (who)
		uncharge(who);
}
