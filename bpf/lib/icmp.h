/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ICMP errors: they belong to the flow of the packet they quote. */
#pragma once
#include "answer.h"
#include "open.h"
#include "quoted.h"

/* Errors about a shortcut flow go across too. The host stack has not seen that flow, and rules there drop
 * packets that belong to no connection (kube-proxy's do). how: of our side. */
static __always_inline int error_across(const struct pkt *p, const struct ct_entry *e, __u32 how)
{
	struct endpoint *peer = ready_endpoint(p->peer_if);
	bool egress = !(how & SIDE_EGRESS); /* the peer's side */
	__u32 stamp = egress ? e->egress : e->ingress;

	if (!peer || !owns(peer, &p->t, true) || (p->flags & PKT_FIRST_FRAGMENT))
		return PASS;
	return stamp && stamp == (__u32)policy_word(peer, egress) ? PASS_SHORTCUT : PASS;
}

/* Whether ep's side, which has allowed the flow before, allows it now. A denial is the flow's own packets' to report. */
static __always_inline bool still_allowed(struct endpoint *ep, const struct tuple *quoted, struct ct_entry *e,
					  __u32 how)
{
	__u32 stamp = how & SIDE_EGRESS ? e->egress : e->ingress;

	if (!stamp)
		return false;
	return stamp == (__u32)policy_word(ep, how & SIDE_EGRESS) || check_side(ep, quoted, e, how, 0) == STAMP_OK;
}

/* What becomes of an error from a pod that is translated with its flow: as of the flow's own packets, see decide. */
static __always_inline int put_off(const struct ct_entry *e)
{
	return e->flags & CT_CONFIRMED ? PASS_WATCHED : PASS_PENDING;
}

/* Whether an ICMP error to the pod, about a packet with these ends, is about another flow than the one on record: by the kernel's conntrack
 * it comes from somebody who has opened a connection to the pod and whom the node masquerades. */
static __always_inline bool quotes_another(struct __sk_buff *skb, const struct tuple *quoted, const struct ct_entry *e)
{
	return ((e->flags & (CT_FROM_HOST | CT_SELF)) || from_opener(quoted, e)) && masqueraded(skb);
}

/* Whether an ICMP error is about a flow that policy allows: a decision, or IS_MESSAGE. */
__noinline int about_flow(struct __sk_buff *skb, struct endpoint *ep, struct pkt *p, __u32 hook)
{
	struct ct_entry *e;
	struct tuple quoted;
	bool orig, egress, moves;
	__u32 how;
	int err;

	if (!ep || !p)
		return -DROP_POLICY;
	err = parse_quoted(skb, p, &quoted);
	if (err)
		return err;
	/* Towards the pod, the quoted packet must be one that this pod sent. From the pod, it must be one that the
	 * pod received, and the error must go to its sender. Otherwise an error could carry data to anybody. */
	if (!same_addr(quoted.src, p->t.dst) || (hook == FROM_POD && !same_addr(quoted.dst, p->t.src)))
		return -DROP_BAD_HEADER;
	if (hook == TO_POD && (made_here(skb, p) || skb->ingress_ifindex == ep->ifindex))
		return PASS; /* from this node, or from the pod itself (D-16) */
	if (hook == FROM_POD && !(p->flags & PKT_FURTHER_SOURCE) && owns(ep, &p->t, true))
		return PASS;
	e = ct_find(&quoted);
	if (e && hook == TO_POD && quotes_another(skb, &quoted, e))
		return IS_MESSAGE;
	if (e && !(e->state & CT_REVOKED) && !(p->flags & PKT_FURTHER_SOURCE)) {
		orig = from_opener(&quoted, e);
		egress = (hook == TO_POD) == orig;
		/* Behind a Service the error is for the backend only if the kernel's conntrack knows it as one about this flow,
		 * and translates it. Until the record is confirmed, that may be another backend. */
		moves = hook == FROM_POD && (e->flags & (CT_SELF | CT_TRANSLATED));
		if (e->flags & CT_SELF || (!egress && (e->flags & CT_FROM_HOST)))
			return moves ? put_off(e) : PASS;
		how = (orig ? SIDE_ORIG : 0) | (egress ? SIDE_EGRESS : 0) | SIDE_QUIET;
		if (!cfg.no_shortcut && hook == FROM_POD && (e->flags & CT_SHORTCUT))
			p->peer_if = orig ? e->opener_if : e->responder_if;
		if (still_allowed(ep, &quoted, e, how)) {
			if (moves)
				return put_off(e);
			return p->peer_if ? error_across(p, e, how) : PASS;
		}
		p->peer_if = 0;
	}
	return IS_MESSAGE;
}

/* Judges an ICMP error like other ICMP messages; it opens no flow. kube-proxy translates errors about its connections, so the
 * judgement of those from a pod is put off like that of other packets (D-17). */
__noinline int judge_error(struct endpoint *ep, const struct pkt *p, __u32 hook, __u32 len)
{
	struct addr_info to;
	struct flow f;

	if (!ep || !p)
		return -DROP_POLICY;
	if (hook == FROM_POD && addr_lookup(p->t.family, p->t.dst, &to) &&
	    (to.flags & (ADDR_MAY_TRANSLATE | ADDR_HOST)))
		return PASS_PENDING;
	if (hook == AFTER_TRANSLATION && owns(ep, &p->t, true))
		return PASS; /* to itself behind a Service */
	flow_of_ends(&f, &p->t, p->l4, true, len);
	return judge_side(ep, &f, hook != TO_POD, hook == AFTER_TRANSLATION ? EVENT_TRANSLATED : 0) ? PASS : denied(&f);
}

/* An ICMP error passes if policy allows the flow of the packet that it quotes, or the error itself. */
static __always_inline int icmp_error(struct __sk_buff *skb, struct endpoint *ep, struct pkt *p, enum hook hook)
{
	int r = about_flow(skb, ep, p, hook);

	/* The node's own errors, and those of the pod itself (D-16), say nothing about backends. */
	if (hook == TO_POD && r == PASS && !made_here(skb, p) && skb->ingress_ifindex != ep->ifindex &&
	    error_from_another(skb, p))
		r = IS_MESSAGE;
	return r == IS_MESSAGE ? judge_error(ep, p, hook, skb->len) : r;
}
