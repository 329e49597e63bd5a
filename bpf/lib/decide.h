/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The decision about a packet at the pod's two hooks, by the steps of the other files. */
#pragma once
#include "answer.h"
#include "fragment.h"
#include "icmp.h"
#include "open.h"
#include "reassembly.h"
#include "track.h"

static __always_inline bool is_tunnel_port(__u16 port)
{
	for (int i = 0; i < TUNNEL_PORTS; i++) {
		if (!cfg.tunnel_ports[i])
			break;
		if (port == cfg.tunnel_ports[i])
			return true;
	}
	return false;
}

/* Whether a packet is a tunnel's. Tunnels that pods make would carry packets past the policy of others (semantics §15). */
static __always_inline bool encapsulates(const struct pkt *p)
{
	if (cfg.allow_encap || p->t.proto == PROTO_TCP)
		return false;
	if (p->t.proto != PROTO_UDP)
		return p->t.proto == PROTO_IPIP || p->t.proto == PROTO_IPV6 || p->t.proto == PROTO_GRE;
	return is_tunnel_port(p->t.dport);
}

#define CHECKSUM_PARTIAL 3 /* linux/skbuff.h */

/* Whether a checksum that is still to be filled in would be written over what is judged here. The sender of a raw packet says
 * where (PACKET_VNET_HDR), and that is done when the packet leaves the node, after all hooks. The checksum's own field is the
 * usual place. A place behind the longest header that is judged belongs to the payload, as that of a packet inside a
 * tunnel does; the payload of an ICMP error is judged. Of a datagram in fragments the checksum covers all of them, so no stack
 * leaves it to a device. The kernel drops a fragment whose place is behind its end, which charges do not foresee: see reassembly.h. */
static __always_inline bool checksum_elsewhere(struct __sk_buff *skb, const struct pkt *p)
{
	struct sk_buff *kern = bpf_cast_to_kern_ctx(skb);
	__u32 l4, at;

	if (BPF_CORE_READ_BITFIELD(kern, ip_summed) != CHECKSUM_PARTIAL)
		return false;
	if (p->flags & (PKT_FIRST_FRAGMENT | PKT_LATER_FRAGMENT))
		return true;
	l4 = (__u32)(kern->data - kern->head) + p->l4_off;
	at = (__u32)kern->csum_start + kern->csum_offset;
	if (p->t.proto == PROTO_TCP)
		return at != l4 + 16 && at < l4 + 20;
	if (p->t.proto == PROTO_UDP)
		return at != l4 + 6 && at < l4 + 8;
	if (p->t.proto == PROTO_SCTP)
		return at != l4 + 8 && at < l4 + 16;
	return is_icmp(&p->t) || at < l4;
}

/* More segments than any stack leaves to be made of one packet: of the longest of TCP it is some 750 where a peer wants segments of 88 bytes. */
#define MOST_SEGMENTS 1024

/* Whether the node's kernel, or a device, would make very many segments of a packet. The sender of a raw packet says how long they
 * are (PACKET_VNET_HDR). Of 65,000 bytes the kernel makes as many segments of one byte, and its CPU does nothing else for 70 ms. */
static __always_inline bool shatters(const struct __sk_buff *skb)
{
	__u32 size = skb->gso_size;

	return size && skb->len > size * MOST_SEGMENTS;
}

/* Whether TCP flags neither open, continue nor end a connection. Receivers handle such packets differently, so
 * they are dropped. Of a packet that is still to be segmented only the last segment keeps the FIN. */
static __always_inline bool absurd(const struct __sk_buff *skb, const struct pkt *p)
{
	__u8 f = p->tcp & (TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK);

	if (p->t.proto != PROTO_TCP || (p->flags & PKT_LATER_FRAGMENT))
		return false;
	return !f || (f == TCP_FIN && skb->gso_size) || ((f & TCP_SYN) && (f & (TCP_FIN | TCP_RST)));
}

/* The reasons of drops that follow from policy, as far as flows and first fragments are known here. */
#define BY_POLICY \
	(1 << DROP_POLICY | 1 << DROP_REVOKED | 1 << DROP_MIDFLOW | 1 << DROP_NO_TABLE | 1 << DROP_FRAG_NO_FIRST)

/* While one dataplane comes after another, both judge all packets of an endpoint, and this one may not know flows yet that
 * the other has allowed. So packets that policy seems to deny pass, and the other one drops them. Allowed ones are recorded as always.
 * The first fragment of a datagram may have passed before this one was attached; the other one judges the whole datagram. When this
 * one judges alone, later fragments of a pod go on passing without a first one, for as long as the kernel keeps that. All such fragments of
 * pods are put off: the datagram is judged after translation, by the policy of then, if the kernel has put it together. */
static __always_inline int beside(const struct endpoint *ep, const struct pkt *p, enum hook hook, int r)
{
	__u32 passing = 0;

	if (ep->flags & EP_BESIDE)
		passing = BY_POLICY;
	else if ((ep->flags & EP_BESIDE_BEFORE) && hook == FROM_POD)
		passing = 1 << DROP_FRAG_NO_FIRST;
	if (r >= 0 || !(passing >> (-r & 31) & 1))
		return r;
	return hook == FROM_POD && (p->flags & (PKT_FIRST_FRAGMENT | PKT_LATER_FRAGMENT)) ? PASS_PENDING : PASS;
}

/* The first packet of a flow, or one in mid-flow. */
static __always_inline int opened(struct __sk_buff *skb, struct endpoint *ep, struct pkt *p, enum hook hook)
{
	int r = hook == FROM_POD ? opened_from_pod(ep, p, skb->len) : opened_to_pod(skb, ep, p);

	return r == IS_MIDFLOW ? midflow(skb, ep, p, hook) : r;
}

/* The kernel does not know of flows by the shortcut, so it may give a flow that it translates the ends of one: a pod has sent to
 * another pod, and then sends from the same port to a Service that leads to it. Answers of the later flow have to be
 * translated back, so they go by the node's stack from here on. If the former flow goes on, its packets go there, too. */
static __always_inline void leave_shortcut(struct __sk_buff *skb, struct ct_entry *e)
{
	if ((e->flags & CT_SHORTCUT) && translated_at_tc(skb))
		e->flags &= ~CT_SHORTCUT;
}

static __always_inline int decide(struct __sk_buff *skb, struct endpoint *ep, struct pkt *p, enum hook hook)
{
	struct ct_entry *e;
	__u32 fwd;
	int r;

	if (hook == FROM_POD && encapsulates(p))
		return -DROP_ENCAP;
	if (absurd(skb, p))
		return -DROP_CT_INVALID;
	if (unlikely(p->flags & (PKT_LATER_FRAGMENT | PKT_ICMP_ERROR | PKT_FURTHER_SOURCE))) {
		if (p->flags & PKT_LATER_FRAGMENT)
			return later_at_tc(skb, ep, p, hook);
		if (p->flags & PKT_ICMP_ERROR)
			return icmp_error(skb, ep, p, hook);
		if (hook == FROM_POD && is_of_others(ep, p))
			return judge_alone(ep, p, skb->len);
	}
	e = ct_find_fwd(&p->t, &fwd);
	if (!e || reopens(p, e, fwd) || is_over(e) ||
	    (hook == FROM_POD ? answers_nothing(p, e, fwd) : ends_of_another(skb, ep, p, e, fwd))) {
		if (hook == FROM_POD && e && !(e->flags & CT_SHORTCUT))
			p->flags |= PKT_ENDS_IN_STACK;
		return opened(skb, ep, p, hook);
	}
	if (hook == TO_POD && unlikely(e->flags & (CT_SHORTCUT | CT_TRANSLATED))) {
		leave_shortcut(skb, e);
		if (is_unconfirmed(e) && !fwd_from_opener(fwd, e)) {
			r = answered(skb, ep, p, e);
			if (r != IS_ON_RECORD)
				return r;
		}
	}
	if (!cfg.no_shortcut && hook == FROM_POD && (e->flags & CT_SHORTCUT))
		p->peer_if = fwd_from_opener(fwd, e) ? e->responder_if : e->opener_if;
	r = tracked(skb, ep, p, e, fwd, hook);
	if (r == IS_OF_FORMER || (r == -DROP_POLICY && opens_other_way(p, e, fwd)))
		return opened(skb, ep, p, hook);
	if (r != PASS || hook != FROM_POD)
		return r;
	/* Until it is confirmed, the backend on record may be another one than the kernel's: each packet is compared. */
	if (may_move(ep, p, e, fwd))
		return put_off(e);
	return p->peer_if ? across(ep, p, e, fwd, skb->len) : PASS;
}
