/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The reports to user space: drop counts, rule counts, events. */
#pragma once
#include "evaluate.h"

static __always_inline void count_drop(__u32 ifindex, __u32 reason, enum hook hook, __u32 len)
{
	struct drop_key k = { .ifindex = ifindex, .reason = reason, .to_pod = hook == TO_POD };
	struct counter *c = bpf_map_lookup_elem(&drops, &k), one = { 1, len };

	if (c) {
		c->packets++;
		c->bytes += len;
	} else {
		bpf_map_update_elem(&drops, &k, &one, BPF_NOEXIST);
	}
}

static __always_inline void count_rule(__u32 id, __u32 len)
{
	struct counter *c;

	if (!id)
		return;
	c = bpf_map_lookup_elem(&rule_stats, &id);
	if (c) {
		c->packets++;
		c->bytes += len;
	}
}

/* Whether the ring is full because no reader has come for long. Asking first costs less than being refused a place, which
 * takes a lock, and most of the time there is no reader. */
static __always_inline bool events_full(void)
{
	__u64 record = sizeof(struct event) + BPF_RINGBUF_HDR_SZ;

	return bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) + record >= bpf_ringbuf_query(&events, BPF_RB_RING_SIZE);
}

/* Whether one more event of a share has a place, and fits this second's budget of this CPU; suppressed is how many were left
 * out before it. A share has at most as many as it leaves to the others, as of open flows: alone half of the budget, so a
 * pod that is denied all the time does not hide the events of others. */
static __always_inline bool event_allowed(__u32 share, __u16 *suppressed)
{
	struct event_budget *all;
	struct event_share *own;
	__u32 zero = 0, second;

	all = bpf_map_lookup_elem(&event_budgets, &zero);
	own = bpf_map_lookup_elem(&event_shares, &share);
	if (!all || !own || !cfg.event_rate)
		return false;
	second = bpf_jiffies64() / (cfg.hz ? cfg.hz : 250);
	if (all->second != second) {
		all->second = second;
		all->used = 0;
	}
	if (own->second != second) {
		own->second = second;
		own->used = 0;
	}
	if (own->used + all->used >= cfg.event_rate || events_full()) {
		all->suppressed++;
		return false;
	}
	own->used++;
	all->used++;
	*suppressed = all->suppressed > 65535 ? 65535 : all->suppressed;
	all->suppressed = 0;
	return true;
}

/* One new verdict of ep's policy. t has the ends as policy judged them, opener first. flags: enum event_flags, with
 * EVENT_STAGED also staged_id << 16. */
__noinline int emit_event(const struct query *q, const struct tuple *t, const struct endpoint *ep, __u32 flags,
			  __u32 reason)
{
	__u16 suppressed = 0;
	struct event *e;

	if (!q || !t || !ep || !event_allowed(ep->share & (SHARES - 1), &suppressed))
		return 0;
	e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e)
		return 0;
	__builtin_memset(e, 0, sizeof(*e));
	e->time_ns = bpf_ktime_get_ns();
	e->ifindex = ep->ifindex;
	e->slot = q->word >> 32;
	e->generation = (__u32)q->word;
	e->rule_id = q->rule_id;
	e->rule = q->rule;
	e->nlogs = q->nlogs;
	e->npasses = q->npasses;
	__builtin_memcpy(e->log, q->log, sizeof(e->log));
	__builtin_memcpy(e->pass, q->pass, sizeof(e->pass));
	e->reason = reason;
	e->staged_id = flags >> 16;
	e->flags = flags | (t->family == 6 ? EVENT_IPV6 : 0);
	e->proto = t->proto;
	e->sport = t->sport;
	e->dport = q->l4;
	e->suppressed = suppressed;
	__builtin_memcpy(e->src, t->src, 16);
	__builtin_memcpy(e->dst, t->dst, 16);
	bpf_ringbuf_submit(e, 0);
	return 0;
}
