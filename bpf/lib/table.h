/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A policy compiled to a decision table: a fixed number of array reads, whatever the number of rules. */
#pragma once
#include "query.h"

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
static __always_inline int evaluate_table(struct query *q, const struct slot *s, __u32 n)
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
