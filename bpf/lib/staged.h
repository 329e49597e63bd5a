/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The verdict that the staged policies of an endpoint would give. They are compiled as enforced policy is, into slots of their own. */
#pragma once
#include "endpoint.h"
#include "evaluate.h"
#include "flow.h"

enum staged_answer {
	STAGED_NONE = 0, /* not asked, or their policy has no answer yet */
	STAGED_ALLOWS = 1,
	STAGED_DENIES = 2,
};

/* The word of an endpoint's staged policies; 0: there are none. */
__noinline __u64 staged_word(__u32 ifindex, __u32 egress)
{
	struct staged *s = bpf_map_lookup_elem(&staged, &ifindex);

	if (!s)
		return 0;
	return egress ? *(volatile __u64 *)&s->egress : *(volatile __u64 *)&s->ingress;
}

/* Keeps the answer of the staged policies, which q has, from the next evaluation. It is with the flow: the stack of
 * judge_side has no room for it. */
static __always_inline void keep_staged(struct flow *f, const struct query *q)
{
	if (q->missing || q->rule == NO_RULE)
		return;
	f->staged = q->allow ? STAGED_ALLOWS : STAGED_DENIES;
	f->staged_id = q->rule_id;
}

/* Whether they would have decided otherwise than the policy in force, whose answer q has. */
static __always_inline bool staged_differs(const struct flow *f, const struct query *q)
{
	return f->staged && !q->missing && f->staged != (q->allow ? STAGED_ALLOWS : STAGED_DENIES);
}
