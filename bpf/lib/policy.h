/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Asking one side's policy about one flow, and keeping the answer in the flow as a stamp: the generation under which
 * that side allowed it. A packet whose flow carries the current generation needs no policy at all. */
#pragma once
#include "conntrack.h"
#include "endpoint.h"
#include "flow.h"
#include "report.h"
#include "staged.h"

/* The word that publishes a direction's policy, read once: slot and generation belong together. */
static __always_inline __u64 policy_word(struct endpoint *ep, bool egress)
{
	return egress ? *(volatile __u64 *)&ep->egress : *(volatile __u64 *)&ep->ingress;
}

/* A judgement is repeated only if another policy was published meanwhile. */
#define MAX_JUDGEMENTS 4

/* Added to `how`: a denial is not reported, because another judgement follows. */
#define REPORT_ALLOWED 0x100

/* Asks ep's policy. how: bits of enum event_flags; a first judgement is counted for its rule, a repeated one is not, and
 * staged policies are asked about first ones only.
 * Returns the generation that allows, or 0; then denied() is the reason. */
__noinline __u32 judge_side(struct endpoint *ep, struct flow *f, __u32 egress, __u32 how)
{
	struct query q = {};

	if (!ep || !f)
		return 0;
	f->staged = 0;
	q.l4 = f->l4;
	q.sport = f->t.sport;
	q.proto = f->t.proto;
	q.family = f->t.family;
	if ((ep->flags & (egress ? EP_STAGED_EGRESS : EP_STAGED_INGRESS)) &&
	    !(how & (EVENT_REJUDGED | EVENT_REVOKED))) {
		q.word = staged_word(ep->ifindex, egress);
		q.class = class_of_end(&f->t, egress);
		evaluate(&q);
		keep_staged(f, &q);
	}
	for (int again = 0; again < MAX_JUDGEMENTS; again++) {
		/* The policy word is read before the address. When a member leaves a set, its address is written
		 * first and the generation raised afterwards. So a verdict reached with the old members has an old
		 * generation, and the next packet is judged again. */
		q.word = policy_word(ep, egress);
		q.class = class_of_end(&f->t, egress);
		evaluate(&q);
		/* If this CPU was held up between the two reads, the class may be newer than the policy, which has
		 * no row for it. Then the policy in force is evaluated. */
		if (q.rule != NO_RULE || q.word == policy_word(ep, egress))
			break;
	}
	f->missing = q.missing;
	if (!(how & (EVENT_REJUDGED | EVENT_REVOKED)))
		count_rule(q.rule_id, f->len);
	if (!q.allow && (how & REPORT_ALLOWED))
		return 0;
	how &= 0xff;
	if (staged_differs(f, &q)) {
		how |= EVENT_STAGED | (__u32)f->staged_id << 16;
		count_rule(f->staged_id, f->len);
	}
	if (!q.allow && (how & EVENT_REJUDGED))
		how = (how & ~EVENT_REJUDGED) | EVENT_REVOKED;
	if (!egress)
		how |= EVENT_INGRESS;
	emit_event(&q, &f->t, ep, how, q.allow ? DROP_NONE : q.missing ? DROP_NO_TABLE : DROP_POLICY);
	return q.allow ? (__u32)q.word : 0;
}

/* The decision about a packet of a flow that judge_side has not allowed. */
static __always_inline int denied(const struct flow *f)
{
	return f->missing ? -DROP_NO_TABLE : -DROP_POLICY;
}

/* STAMP_MISSING is STAMP_DENIED because a part of the policy is not there. STAMP_OTHERS: the flow is that of a pod which had the
 * address before. */
enum stamp { STAMP_OK, STAMP_DENIED, STAMP_MISSING, STAMP_REVOKED, STAMP_OTHERS };

/* Writes the answer of policy into the flow: the generation that allows it, or 0. */
__noinline int put_stamp(const struct endpoint *ep, const struct tuple *t, struct ct_entry *e, __u32 how, __u32 gen)
{
	if (!ep || !t || !e)
		return STAMP_DENIED;
	if (!(how & SIDE_COPY) && !ct_is(t, e))
		return STAMP_DENIED; /* evicted meanwhile: this is another flow's entry */
	if (!gen)
		return STAMP_REVOKED;
	if (how & SIDE_EGRESS) {
		e->egress = gen;
		e->opener_if = ep->ifindex;
	} else {
		e->ingress = gen;
		e->responder_if = ep->ifindex;
	}
	if ((how & SIDE_COPY) || ct_is(t, e))
		return STAMP_OK;
	/* The entry was replaced between the two checks. The flow that has it now is judged again. */
	if (how & SIDE_EGRESS)
		e->egress = 0;
	else
		e->ingress = 0;
	return STAMP_DENIED;
}

/* Makes sure ep's side of a tracked flow is allowed under the policy in force. */
__noinline int check_side(struct endpoint *ep, const struct tuple *t, struct ct_entry *e, __u32 how, __u32 len)
{
	bool egress = how & SIDE_EGRESS;
	__u32 stamp, judged_if, gen;
	struct flow f = {};

	if (!ep || !t || !e)
		return STAMP_DENIED;
	stamp = egress ? e->egress : e->ingress;
	judged_if = egress ? e->opener_if : e->responder_if;
	if (judged_if && (judged_if != ep->ifindex || (stamp && stamp < ep->id))) {
		/* This end is another pod now than the one that the other side allowed: it has allowed nothing yet. The
		 * numbers of interfaces are used again, those of endpoints are not. */
		if (cfg.keep_existing && egress)
			e->ingress = 0;
		else if (cfg.keep_existing)
			e->egress = 0;
		return STAMP_OTHERS;
	}
	if (cfg.keep_existing && stamp && judged_if) {
		gen = (__u32)policy_word(ep, egress);
		if (gen)
			goto allowed;
	}
	how |= stamp ? SIDE_STAMPED : 0;
	asm volatile("" : "+r"(how)); /* nothing but how is kept from here on: the stack has no room for more */
	flow_of(&f, t, e, how, len);
	gen = judge_side(ep, &f, !!(how & SIDE_EGRESS),
			 (how & SIDE_STAMPED ? EVENT_REJUDGED : 0) | (how & SIDE_QUIET ? REPORT_ALLOWED : 0) |
				 (e->flags & CT_TRANSLATED ? EVENT_TRANSLATED : 0));
	if (!gen && !(how & SIDE_STAMPED))
		return f.missing ? STAMP_MISSING : STAMP_DENIED;
allowed:
	return put_stamp(ep, t, e, how, gen);
}

/* The usual case, inline: one comparison. */
static __always_inline int side_allowed(struct endpoint *ep, const struct pkt *p, struct ct_entry *e, bool orig,
					bool egress, __u32 len)
{
	__u32 stamp;

	if (e->flags & (CT_FROM_HOST | CT_SELF)) {
		if (!egress || (e->flags & CT_SELF))
			return STAMP_OK;
	}
	stamp = egress ? e->egress : e->ingress;
	if (stamp && stamp == (__u32)policy_word(ep, egress))
		return STAMP_OK;
	return check_side(ep, &p->t, e, (orig ? SIDE_ORIG : 0) | (egress ? SIDE_EGRESS : 0), len);
}
