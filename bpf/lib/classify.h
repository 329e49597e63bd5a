/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The verdict of one compiled policy: by decision table (a fixed number of array reads, whatever the number of rules),
 * or, for a policy too large for tables, by walking the ordered match table. Anything missing denies. */
#pragma once
#include "packet.h"

/* No entry of the ordered match table: a part is missing, or row 0, the class is not known to the table. */
#define NO_RULE 0xffff

/* One question to a policy, and its answer. */
struct query {
	__u64 word;  /* of the endpoint: slot << 32 | generation */
	__u32 class; /* of the remote address */
	__u16 l4;    /* destination port, type << 8 | code, or protocol */
	__u16 sport;
	__u8 proto;
	__u8 family;
	/* answer */
	__u8 allow;
	__u8 missing; /* 1: denied because a part of the policy is not there */
	__u16 rule;
	__u8 nlogs;
	__u8 npasses;
	__u32 rule_id;
	__u16 log[4];
	__u16 pass[6];
};

static __always_inline __u32 l4_index_of(__u8 proto)
{
	switch (proto) {
	case PROTO_TCP: return L4_TCP;
	case PROTO_UDP: return L4_UDP;
	case PROTO_SCTP: return L4_SCTP;
	case PROTO_ICMP: return L4_ICMP;
	case PROTO_ICMPV6: return L4_ICMPV6;
	}
	return L4_OTHER;
}

/* Two-level page walk; returns the column, or -1. */
static __always_inline int l4_column(void *pages, __u32 first, __u16 key)
{
	struct l4_page *page = bpf_map_lookup_elem(pages, &first);
	__u32 second;

	if (!page)
		return -1;
	second = page->col[key >> 8];
	page = bpf_map_lookup_elem(pages, &second);
	if (!page)
		return -1;
	return page->col[key & 255];
}

static __always_inline int cell(void *blocks, __u32 index)
{
	__u32 k = index >> 5;
	struct cell_block *b = bpf_map_lookup_elem(blocks, &k);

	return b ? b->cell[index & 31] : -1;
}

/* A row of a wide table has at most 65,535 exceptions. */
#define SEARCH_STEPS 17

/* Looks for an exception of the row. Returns its outcome, -1 if a part is missing, or -2 - base if there is none. Not
 * inline, and a loop of its own instead of bpf_loop, for the sake of the stack. */
static __noinline int exception(__u32 n, const struct slot *s, __u32 row, __u32 col)
{
	__u32 k = s->heads + (row >> 3), at = (row & 7) * 4, low, high;
	void *part = bpf_map_lookup_elem(&rowblk, &n);
	struct cell_block *b = part ? bpf_map_lookup_elem(part, &k) : NULL;
	int base;

	part = bpf_map_lookup_elem(&cells, &n);
	if (!b || !part)
		return -1;
	low = s->exceptions * 16 + (b->cell[at + 1] | (__u32)b->cell[at + 2] << 16);
	high = low + b->cell[at + 3];
	base = b->cell[at];
	for (int i = 0; i < SEARCH_STEPS && low < high; i++) {
		__u32 mid = low + ((high - low) >> 1);

		k = mid >> 4;
		b = bpf_map_lookup_elem(part, &k);
		if (!b)
			return -1;
		at = (mid & 15) * 2;
		if (b->cell[at] == col)
			return b->cell[at + 1];
		if (b->cell[at] < col)
			low = mid + 1;
		else
			high = mid;
	}
	return -2 - base;
}

/* Returns 0 with the answer in q, or -1 if something is missing. */
static __always_inline int classify_by_table(struct query *q, const struct slot *s, __u32 n)
{
	__u32 index = l4_index_of(q->proto), k;
	struct outcome *o;
	void *part;
	int row, col, block, out;

	/* Each part is fetched when it is needed: five pointers at once would not fit on the stack. */
	part = bpf_map_lookup_elem(&rows, &n);
	if (!part)
		return -1;
	row = cell(part, q->class);
	part = bpf_map_lookup_elem(&l4, &n);
	if (!part || row < 0)
		return -1;
	col = l4_column(part, index, q->l4);
	if (col < 0)
		return -1;
	if (s->flags & SLOT_SOURCE_PORTS) {
		int scol = l4_column(part, L4_INDEXES + index, has_ports(q->proto) ? q->sport : 0);

		if (scol < 0)
			return -1;
		col = col * s->sports + scol;
	}
	out = s->flags & SLOT_WIDE ? exception(n, s, row, col) : -2 - row;
	if (out < -1) {
		part = bpf_map_lookup_elem(&rowblk, &n);
		if (!part)
			return -1;
		block = cell(part, (-2 - out) * s->blocks + ((__u32)col >> 5));
		part = bpf_map_lookup_elem(&cells, &n);
		if (!part || block < 0)
			return -1;
		out = cell(part, ((__u32)block << 5) | (col & 31));
	}
	part = bpf_map_lookup_elem(&outcomes, &n);
	if (!part || out < 0)
		return -1;
	k = out;
	o = bpf_map_lookup_elem(part, &k);
	if (!o)
		return -1;
	q->allow = o->action == RULE_ALLOW;
	q->rule = o->rule;
	q->rule_id = o->id;
	q->nlogs = o->nlogs;
	q->npasses = o->npasses;
	__builtin_memcpy(q->log, o->log, sizeof(q->log));
	__builtin_memcpy(q->pass, o->pass, sizeof(q->pass));
	return 0;
}

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

static __always_inline int classify_by_walk(struct query *q, const struct slot *s, __u32 n)
{
	struct walk w = { .q = q, .slot = n };

	bpf_loop(s->rules, walk_step, &w, 0);
	return w.done ? 0 : -1;
}

__noinline int classify(struct query *q)
{
	__u32 n;
	struct slot *s;
	int err;

	if (!q)
		return -1;
	n = q->word >> 32;
	q->allow = 0;
	q->missing = 0;
	q->rule_id = 0;
	q->rule = NO_RULE;
	q->nlogs = q->npasses = 0;
	s = n ? bpf_map_lookup_elem(&slots, &n) : NULL;
	if (!s)
		err = -1;
	else if (s->flags & SLOT_INTERPRET)
		err = classify_by_walk(q, s, n);
	else
		err = classify_by_table(q, s, n);
	if (err) {
		q->allow = 0;
		q->missing = 1;
	}
	return 0;
}
