/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ICMP errors: they belong to the flow of the packet they quote. */
#pragma once
#include "open.h"
#include "quoted.h"

/* Errors about a shortcut flow go across too. The host stack has not seen that flow, and rules there drop
 * packets that belong to no connection (kube-proxy's do). stamp is the peer's; egress is our side. */
static __always_inline int error_across(const struct pkt *p, __u32 stamp, bool egress)
{
	struct endpoint *peer = ready_endpoint(p->peer_if);

	if (!peer || !owns(peer, &p->t, true) || (p->flags & PKT_FIRST_FRAGMENT))
		return PASS;
	return stamp && stamp == (__u32)policy_word(peer, !egress) ? PASS_SHORTCUT : PASS;
}

/* An ICMP error follows the flow of the packet it quotes; without one it is judged as the ICMP message it is. */
__noinline int icmp_error(struct __sk_buff *skb, struct endpoint *ep, struct pkt *p, __u32 hook)
{
	struct ct_entry *e;
	struct tuple quoted;
	struct flow f;
	bool orig, egress;
	__u32 stamp;
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
	if (e && !(e->state & CT_REVOKED) && !(p->flags & PKT_FURTHER_SOURCE)) {
		orig = from_opener(&quoted, e);
		egress = (hook == TO_POD) == orig;
		if (e->flags & CT_SELF || (!egress && (e->flags & CT_FROM_HOST)))
			return PASS;
		stamp = egress ? e->egress : e->ingress;
		if (stamp && stamp == (__u32)policy_word(ep, egress)) {
			if (cfg.no_shortcut || hook != FROM_POD || !(e->flags & CT_SHORTCUT))
				return PASS;
			p->peer_if = orig ? e->opener_if : e->responder_if;
			return error_across(p, egress ? e->ingress : e->egress, egress);
		}
	}
	flow_of_ends(&f, &p->t, p->l4, true, skb->len);
	return judge_side(ep, &f, hook == FROM_POD, 0) ? PASS : denied(&f);
}
