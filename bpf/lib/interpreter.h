/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A policy too large for tables: its ordered match table is walked, entry by entry. */
#pragma once
#include "query.h"

/* The walk over the ordered match table. */
struct walk {
	struct query *q;
	__u32 slot;
	__u32 next; /* entries before it are jumped over */
	__u32 done;
};

static __always_inline bool in_set(__u32 class, __u32 set)
{
	struct class_chunk k = { .class = class, .chunk = set >> 9 };
	struct set_bits *b = bpf_map_lookup_elem(&class_sets, &k);

	return b && (b->bits[(set >> 6) & 7] >> (set & 63) & 1);
}

static __always_inline bool in_ranges(const struct range *r, __u32 used, const __u32 most, __u16 v)
{
	if (!used)
		return true;
	for (__u32 i = 0; i < most; i++)
		if (i < used && r[i].lo <= v && v <= r[i].hi)
			return true;
	return false;
}

static __always_inline bool rule_matches(const struct rule *r, const struct query *q)
{
	if (!(r->flags & (q->family == 4 ? RULE_V4 : RULE_V6)))
		return false;
	if ((r->flags & RULE_PROTO) && r->proto != q->proto)
		return false;
	if ((r->flags & RULE_NOT_PROTO) && r->proto == q->proto)
		return false;
	if (!in_ranges(r->dport, r->ndports, 5, q->l4))
		return false;
	if (r->nsports && (!has_ports(q->proto) || !in_ranges(r->sport, r->nsports, 2, q->sport)))
		return false;
	for (int i = 0; i < 3; i++) {
		if (r->in[i] && !in_set(q->class, r->in[i]))
			return false;
		if (r->not_in[i] && in_set(q->class, r->not_in[i]))
			return false;
	}
	return true;
}

static long walk_step(__u32 i, struct walk *w)
{
	void *list;
	struct rule *r;

	if (i < w->next)
		return 0;
	list = bpf_map_lookup_elem(&rules, &w->slot);
	if (!list)
		return 1;
	r = bpf_map_lookup_elem(list, &i);
	if (!r)
		return 1;
	if (!rule_matches(r, w->q))
		return 0;
	if (r->action == RULE_LOG) {
		if (w->q->nlogs < 4)
			w->q->log[w->q->nlogs & 3] = i;
		if (w->q->nlogs < 255)
			w->q->nlogs++;
		return 0;
	}
	if (r->action == RULE_PASS || r->action == RULE_SKIP) {
		w->next = r->jump;
		if (r->action == RULE_SKIP)
			return 0;
		if (w->q->npasses < 6)
			w->q->pass[w->q->npasses & 7] = i;
		if (w->q->npasses < 255)
			w->q->npasses++;
		return 0;
	}
	w->q->allow = r->action == RULE_ALLOW;
	w->q->rule = i;
	w->q->rule_id = r->id;
	w->done = 1;
	return 1;
}

static __always_inline int interpret(struct query *q, const struct slot *s, __u32 n)
{
	struct walk w = { .q = q, .slot = n };

	bpf_loop(s->rules, walk_step, &w, 0);
	return w.done ? 0 : -1;
}
