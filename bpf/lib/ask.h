/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Questions of the agent to compiled policies, by test-run: what verdict would a packet get? They use the maps and the code
 * that packets are judged by, and change nothing: no flow, no counter, no event. The program is attached nowhere. */
#pragma once
#include "endpoint.h"
#include "evaluate.h"

/* Questions begin behind the space of an Ethernet header; more do not fit into a test-run. */
#define ASK_FROM 16
#define ASK_MOST 40

/* Answers q by the ordered match table, whether or not the policy has a decision table. */
__noinline int evaluate_rules(struct query *q)
{
	struct slot *s;
	__u32 n;

	if (!q)
		return -1;
	n = q->word >> 32;
	s = n ? bpf_map_lookup_elem(&slots, &n) : NULL;
	if (!s || interpret(q, s, n)) {
		q->allow = 0;
		q->missing = 1;
	}
	return 0;
}

/* Answers one question. */
__noinline int answer_asked(struct asked *a)
{
	struct query q = {};
	struct tuple t = {};

	if (!a)
		return -1;
	t.family = a->family;
	__builtin_memcpy(t.src, a->addr, sizeof(t.src));
	q.word = a->word;
	q.class = class_of_end(&t, 0);
	q.l4 = a->l4;
	q.sport = a->sport;
	q.proto = a->proto;
	q.family = a->family;
	q.rule = NO_RULE;
	if (a->by_rules)
		evaluate_rules(&q);
	else
		evaluate(&q);
	a->class = q.class;
	a->rule_id = q.rule_id;
	a->rule = q.rule;
	a->allow = q.allow;
	a->missing = q.missing;
	a->nlogs = q.nlogs;
	a->npasses = q.npasses;
	__builtin_memcpy(a->log, q.log, sizeof(a->log));
	__builtin_memcpy(a->pass, q.pass, sizeof(a->pass));
	return 0;
}

static __always_inline void answer_all(struct __sk_buff *skb)
{
	struct asked a;

	for (__u32 i = 0; i < ASK_MOST; i++) {
		__u32 at = ASK_FROM + i * sizeof(a);

		if (bpf_skb_load_bytes(skb, at, &a, sizeof(a)))
			return;
		answer_asked(&a);
		if (bpf_skb_store_bytes(skb, at, &a, sizeof(a), 0))
			return;
	}
}
