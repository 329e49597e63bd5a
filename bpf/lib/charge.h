/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Charges for fragments to a share, by periods: charges expire with their period, without a timer. */
#pragma once
#include "packet.h"

/* Charges count for at least six periods: longer than the kernel's timeouts of 30 and 60 s. */
#define PERIOD_SECONDS4 6
#define PERIOD_SECONDS6 11

/* A fragment that is on the way. */
struct charge {
	__u32 share;
	__u32 family;
	__u32 period; /* the present one */
	__u32 own;    /* bytes charged to the share's own part */
	__u32 common; /* and to what all have in common */
	__u32 seen;   /* coarse clock */
};

static __always_inline __u32 period_now(__u8 family)
{
	return bpf_jiffies64() / (cfg.hz ? cfg.hz : 250) / (family == 4 ? PERIOD_SECONDS4 : PERIOD_SECONDS6);
}

/* 1 if charges of a period still count, else 0. Those of the next one do: another CPU may be there. */
static __always_inline __u32 counts(__u32 period, __u32 now)
{
	return is_zero((now - period + 1) / FRAG_PERIODS);
}

static __always_inline struct frag_account *frag_account(__u32 family, __u32 share)
{
	__u32 i = (family == 4 ? 0 : SHARES + 1) + share;

	return bpf_map_lookup_elem(&frag_memory, &i);
}

/* The charges of the present period. The account is locked. */
static __always_inline struct frag_period *this_period(struct frag_account *a, __u32 now)
{
	struct frag_period *p = &a->of[now & (FRAG_PERIODS - 1)];

	if (p->period != now) {
		p->period = now;
		p->own = p->common = 0;
	}
	return p;
}

/* Charges a fragment of so many bytes to its share, or if that has no room to the common pool. A share may use at
 * most as much of the pool as it leaves free. Returns whether there was room. */
__noinline int charge(struct charge *c, __u32 bytes)
{
	__u32 own = 0, common = 0, total = 0, now;
	struct frag_account *a, *all;

	if (!c)
		return false;
	now = c->period;
	a = frag_account(c->family, c->share);
	all = frag_account(c->family, SHARES);
	if (!a || !all)
		return false;
	bpf_spin_lock(&a->lock);
	for (int i = 0; i < FRAG_PERIODS; i++) {
		own += a->of[i].own * counts(a->of[i].period, now);
		common += a->of[i].common * counts(a->of[i].period, now);
	}
	if (own + bytes <= FRAG_OWN_BYTES) {
		this_period(a, now)->own += bytes;
		c->own = bytes;
	}
	bpf_spin_unlock(&a->lock);
	if (c->own)
		return true;
	bpf_spin_lock(&all->lock);
	for (int i = 0; i < FRAG_PERIODS; i++)
		total += all->of[i].common * counts(all->of[i].period, now);
	if (total + common + bytes <= FRAG_COMMON_BYTES) {
		this_period(all, now)->common += bytes;
		c->common = bytes;
	}
	bpf_spin_unlock(&all->lock);
	if (!c->common)
		return false;
	bpf_spin_lock(&a->lock);
	this_period(a, now)->common += bytes;
	bpf_spin_unlock(&a->lock);
	return true;
}

/* Refunds charges of the present period. */
__noinline int discharge(const struct charge *c)
{
	struct frag_account *a, *all;
	struct frag_period *p;

	if (!c)
		return 0;
	a = frag_account(c->family, c->share);
	all = frag_account(c->family, SHARES);
	if (!a || !all)
		return 0;
	bpf_spin_lock(&a->lock);
	p = this_period(a, c->period);
	p->own -= c->own;
	p->common -= c->common;
	bpf_spin_unlock(&a->lock);
	if (!c->common)
		return 0;
	bpf_spin_lock(&all->lock);
	this_period(all, c->period)->common -= c->common;
	bpf_spin_unlock(&all->lock);
	return 0;
}
