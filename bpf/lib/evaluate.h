/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The verdict of one compiled policy. Anything missing denies. */
#pragma once
#include "interpreter.h"
#include "table.h"

/* Answers a question by the policy in the slot that it names. */
__noinline int evaluate(struct query *q)
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
		err = interpret(q, s, n);
	else
		err = evaluate_table(q, s, n);
	if (err) {
		q->allow = 0;
		q->missing = 1;
	}
	return 0;
}
