//go:build ignore
// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The programs, as a table of contents. The life of a packet:
 *
 *   from_pod   parse, whose endpoint, not spoofed, flow or policy (egress), maybe straight to the peer
 *   guard      nothing that from_pod has not seen from workload interfaces, before the kernel's conntrack has it
 *   judge      egress policy for packets that kube-proxy may have translated; nothing from or to unknown workload interfaces
 *   to_pod     parse, whose endpoint, flow or policy (ingress)
 */
#include "lib/parse_fast.h"
#include "lib/decide.h"
#include "lib/reset.h"
#include "lib/shortcut.h"
#include "lib/neighbour.h"
#include "lib/netfilter.h"
#include "lib/guard.h"
#include "lib/sweep.h"
#include "lib/restamp.h"
#include "lib/ask.h"
#include "lib/export.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* The mark bits of an allowed packet. judge alone: it is judged only if the kernel's conntrack begins an entry with it. */
static __always_inline __u32 mark_of(int decision)
{
	__u32 judge = decision == PASS_PENDING ? cfg.mark_seen | cfg.mark_judge : cfg.mark_seen;

	return decision == PASS_WATCHED ? cfg.mark_judge : judge;
}

/* The single exit of the TC programs: turns a decision into an action, counts, cuts. */
static __always_inline int verdict(struct __sk_buff *skb, struct pkt *p, enum hook hook, int r)
{
	if (r >= 0) {
		if (hook == TO_POD)
			return TCX_NEXT;
		/* cfg.no_shortcut is tested as well: without shortcuts the verifier removes this branch, and with it
		 * the only direct write to packets. For a program that has one, the kernel unshares every packet first. */
		if (!cfg.no_shortcut && r == PASS_SHORTCUT) {
			r = send_across(skb, p);
			if (r != TCX_NEXT)
				return r;
		}
		skb->mark |= mark_of(r);
		return TCX_NEXT;
	}
	if (p->peer_denied)
		count_drop(p->peer_if, -r, TO_POD, skb->len);
	else
		count_drop(skb->ifindex, -r, hook, skb->len);
	if (r == -DROP_REVOKED && p->t.proto == PROTO_TCP && !reset_flow(skb, p, hook)) {
		if (!cfg.no_shortcut && p->peer_if)
			return send_across(skb, p);
		return TCX_NEXT;
	}
	return TCX_DROP;
}

static __always_inline int is_arp(struct __sk_buff *skb)
{
	return skb->protocol == bpf_htons(ETH_P_ARP);
}

/* One exit: verdict() is inline, and the more often it is there, the more code a packet of a known flow jumps over. */
static __always_inline int handle(struct __sk_buff *skb, enum hook hook)
{
	struct pkt p = {};
	struct endpoint *ep;
	int r = -DROP_NOT_IP;

	if (skb->vlan_present)
		goto out;
	r = 0;
	if (!parse_fast(skb, &p)) {
		if (is_arp(skb)) {
			r = hook == FROM_POD ? arp_from_pod(skb) : PASS;
			goto out;
		}
		r = parse_slow(skb, &p);
		if (!r && (p.flags & PKT_LINK_LOCAL_ND)) {
			r = hook == FROM_POD ? nd_from_pod(skb, &p) : PASS;
			goto out;
		}
	}
	ep = ready_endpoint(skb->ifindex);
	if (!ep) {
		r = hook == TO_POD && !r && from_the_link(&p) ? PASS : -DROP_NO_ENDPOINT;
		goto out;
	}
	if ((skb->mark & cfg.mark_own) && !r && own_reset(skb, &p)) {
		skb->mark |= cfg.mark_seen;
		return TCX_NEXT;
	}
	if (!r && hook == FROM_POD && unlikely(shatters(skb) || checksum_elsewhere(skb, &p)))
		r = -DROP_BAD_HEADER;
	if (!r && hook == FROM_POD && !owns(ep, &p.t, false)) {
		if ((ep->flags & EP_SOURCES) && lists_source(&p.t, ep->ifindex))
			p.flags |= PKT_FURTHER_SOURCE;
		else
			r = -DROP_SPOOFED;
	}
	if (!r) {
		r = beside(ep, &p, hook, decide(skb, ep, &p, hook));
		if (hook == FROM_POD && (p.flags & (PKT_FIRST_FRAGMENT | PKT_LATER_FRAGMENT)))
			r = fragment_from_pod(skb, ep, &p, r);
		else if (p.flags & PKT_FIRST_FRAGMENT)
			first_at_tc(skb, ep, &p, hook, r);
	}
out:
	return verdict(skb, &p, hook, r);
}

SEC("tcx/ingress")
int from_pod(struct __sk_buff *skb)
{
	return handle(skb, FROM_POD);
}

SEC("tcx/egress")
int to_pod(struct __sk_buff *skb)
{
	return handle(skb, TO_POD);
}

SEC("netfilter")
int guard(struct bpf_nf_ctx *ctx)
{
	return guard_packet(ctx);
}

SEC("netfilter")
int judge(struct bpf_nf_ctx *ctx)
{
	if (usual(ctx))
		return NF_ACCEPT;
	return answers_unseen(ctx) ? drop_answer(ctx) : judge_packet(ctx);
}

SEC("tcx/ingress")
int ask(struct __sk_buff *skb)
{
	answer_all(skb);
	return TCX_NEXT;
}

/* Does nothing: what benchmarks subtract. */
SEC("tcx/ingress")
int empty(struct __sk_buff *skb)
{
	return TCX_NEXT;
}
