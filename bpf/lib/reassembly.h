/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Fragments of pods in the kernel's memory for reassembly. A node whose kernel tracks connections reassembles all that it
 * forwards, in 4 MiB for each family. Each fragment that a pod may send is charged to the pod, with what the kernel counts
 * for it, until the kernel must have let it go: after its timeout, or when the datagram is complete. A pod that would hold
 * more than its share of the memory is refused further fragments.
 *
 * That a datagram is complete is believed if its fragments came in order, each beginning where the one before it ended, and
 * if nothing about them could make the kernel drop one of them. Fragments out of order are charged until the timeout. */
#pragma once
#include "charge.h"
#include "fragment.h"
#include "kernel.h"
#include "parse.h"

/* The kernel counts a queue besides the packets in it: less than this. */
#define QUEUE_SIZE 256

/* It also counts a larger head, if it has to copy headers from pages into it: less than twice as much as the headers and this. */
#define HEAD_SIZE 2048

/* The kernel drops the fragments that it holds of an IPv4 datagram if more than 64 fragments of the same source came
 * between two of them (net.ipv4.ipfrag_max_dist). Less than that, because CPUs may count in another order. */
#define MAX_DISTANCE 48

/* Where a fragment is in its datagram. */
struct span {
	__u32 from, to; /* in units of 8 bytes; to: rounded up */
	bool more;
	bool plain; /* nothing but its place and its time decides what the kernel does with it */
};

/* The only headers that a plain IPv6 fragment has in front of its transport. */
struct plain6 {
	struct ipv6_hdr ip;
	__u8 next, reserved;
	__be16 frag_be;
	__be32 id_be;
};

/* Reads a fragment's place in its datagram. Before reassembly the kernel drops packets for another MAC address, IPv4
 * packets with a wrong checksum, and IPv6 packets with some addresses or extension headers. A first IPv6 fragment that ends with
 * extension headers it does not collect (RFC 8200, 4.5). */
__noinline int fragment_span(struct __sk_buff *skb, const struct pkt *p, struct span *s)
{
	__u32 bytes = 0;

	if (!p || !s)
		return 0;
	__builtin_memset(s, 0, sizeof(*s));
	if (p->t.family == 4) {
		struct ipv4_hdr ip;
		__u64 sum;

		if (bpf_skb_load_bytes(skb, sizeof(struct ethhdr), &ip, sizeof(ip)))
			return 0;
		sum = bpf_csum_diff(NULL, 0, (__be32 *)&ip, sizeof(ip), 0);
		sum = (sum & 0xffff) + (sum >> 16);
		sum = (sum & 0xffff) + (sum >> 16);
		s->plain = ip.ver_ihl == 0x45 && (sum & 0xffff) == 0xffff;
		s->from = bpf_ntohs(ip.frag_be) & 0x1fff;
		s->more = bpf_ntohs(ip.frag_be) & 0x2000;
		bytes = bpf_ntohs(ip.len_be) - sizeof(ip);
	} else {
		struct plain6 h;

		if (bpf_skb_load_bytes(skb, sizeof(struct ethhdr), &h, sizeof(h)))
			return 0;
		s->plain = h.ip.next == PROTO_FRAGMENT && p->l4_off == sizeof(struct ethhdr) + sizeof(h) &&
			   h.ip.dst[0] && (h.ip.dst[0] & 0xff) != 0xff;
		s->from = bpf_ntohs(h.frag_be) >> 3;
		s->more = bpf_ntohs(h.frag_be) & 1;
		bytes = bpf_ntohs(h.ip.len_be) - 8;
	}
	s->to = s->from + (bytes + 7) / 8;
	if (skb->pkt_type != PACKET_HOST || !bytes || s->from * 8 + bytes > 65535 || (s->more && bytes % 8))
		s->plain = false;
	return 0;
}

/* 1 if the kernel may hold something of a datagram, else 0. */
static __always_inline __u32 is_open(const struct fragment *f, __u32 now)
{
	return (is_zero(f->state ^ FRAGMENT_IN_ORDER) | is_zero(f->state ^ FRAGMENT_OUT_OF_ORDER)) &
	       counts(f->period, now);
}

/* A place in a set that no open datagram needs, from the one on whose turn it is; or FRAG_WAYS. */
static __always_inline __u32 frag_place(struct frag_set *s, __u32 now)
{
	__u32 at = FRAG_WAYS;

	for (int i = FRAG_WAYS - 1; i >= 0; i--) {
		__u32 place = (s->turn + i) & (FRAG_WAYS - 1), open = is_open(&s->of[place], now);

		at = open * at + (1 - open) * place;
	}
	return at;
}

/* The state of a record after a first fragment. If the datagram is open the pod has begun it again, or repeats a fragment: what the
 * kernel holds of it is not known any more. So it is of one that was complete a moment ago: on another CPU the kernel may
 * see its fragments in another order. */
static __always_inline __u8 state_after_first(const struct fragment *old, const struct fragment *f,
					      const struct span *s, __u32 open)
{
	if (open || (old->state == FRAGMENT_COMPLETE && f->seen - old->seen <= 1))
		return FRAGMENT_OUT_OF_ORDER;
	if (f->verdict == FRAGMENT_DENIED)
		return FRAGMENT_NONE;
	if (!s->plain)
		return FRAGMENT_OUT_OF_ORDER;
	return s->more ? FRAGMENT_IN_ORDER : FRAGMENT_COMPLETE;
}

static __always_inline __u8 state_after_later(const struct fragment *old, const struct fragment *f,
					      const struct span *s, __u32 open)
{
	if (!open || old->state != FRAGMENT_IN_ORDER || !s->plain || s->from != old->next ||
	    f->verdict == FRAGMENT_DENIED)
		return FRAGMENT_OUT_OF_ORDER;
	if (f->way >> 8 == 4 && f->number - old->number > MAX_DISTANCE)
		return FRAGMENT_OUT_OF_ORDER;
	/* The kernel has given up what it had: see EP_BESIDE_BEFORE. */
	if (frag_is_old(old->seen, f->seen))
		return FRAGMENT_OUT_OF_ORDER;
	return s->more ? FRAGMENT_IN_ORDER : FRAGMENT_COMPLETE;
}

/* Puts a fragment into the record of its datagram. */
static __always_inline void put_fragment(struct fragment *r, struct fragment *f, const struct span *span, bool first,
					 struct charge *c)
{
	__u32 same = same_datagram(r, f), open = is_open(r, f->period) & same;
	__u32 charged = open & is_zero(r->period ^ f->period);

	if (!same)
		r->state = FRAGMENT_NONE;
	if (first) {
		f->state = state_after_first(r, f, span, open);
	} else {
		f->state = state_after_later(r, f, span, open);
		f->verdict = same ? r->verdict : FRAGMENT_UNKNOWN;
		f->seen = same ? r->seen : f->seen;
	}
	f->own = c->own + r->own * charged;
	f->common = c->common + r->common * charged;
	if (f->state == FRAGMENT_COMPLETE) {
		c->own = f->own;
		c->common = f->common;
		f->own = f->common = 0;
		f->seen = c->seen;
	}
	*r = *f;
}

/* Notes a fragment and its charge. Of a datagram that is complete c becomes all that is charged for it in this period.
 * opens: the fragment gets a record if its datagram has none, as a first one does. Returns 0, or a drop reason if there is no record and no
 * place for one. */
__noinline int note_fragment(struct fragment *f, const struct span *span, __u32 first, __u32 opens, struct charge *c)
{
	struct frag_set *s;
	__u32 at;

	if (!f || !span || !c)
		return -DROP_FRAG_LIMIT;
	s = frag_set(f, c->share & (SHARES - 1));
	if (!s)
		return -DROP_FRAG_LIMIT;
	bpf_spin_lock(&s->lock);
	at = frag_find(s, f);
	if (at >= FRAG_WAYS && opens) {
		at = frag_place(s, f->period);
		s->turn = at + 1;
	}
	if (at < FRAG_WAYS)
		put_fragment(&s->of[at & (FRAG_WAYS - 1)], f, span, first, c);
	bpf_spin_unlock(&s->lock);
	if (at < FRAG_WAYS)
		return 0;
	return opens ? -DROP_FRAG_LIMIT : -DROP_FRAG_NO_FIRST;
}

/* The most that the kernel counts for a fragment while it holds it. A pod that sends by a ring (PACKET_TX_RING) has all but the
 * Ethernet header in pages. */
static __always_inline __u32 size_held(const struct sk_buff *kern, const struct pkt *p)
{
	__u32 size = kern->truesize + QUEUE_SIZE;

	return kern->len - kern->data_len < p->l4_off ? size + 2 * p->l4_off + HEAD_SIZE : size;
}

/* Notes the place of a fragment from a pod, and returns the decision about it; a drop if the pod has too many bytes
 * under way. */
__noinline int fragment_from_pod(struct __sk_buff *skb, const struct endpoint *ep, const struct pkt *p, int decision)
{
	struct sk_buff *kern = bpf_cast_to_kern_ctx(skb);
	struct frag_account *a;
	struct charge c = {};
	struct fragment f;
	struct span span;
	__u32 first, opens;
	int err;

	if (!ep || !p)
		return -DROP_FRAG_LIMIT;
	first = p->flags & PKT_FIRST_FRAGMENT;
	if (decision < 0 && !first)
		return decision;
	c.share = ep->share & (SHARES - 1);
	c.family = p->t.family;
	c.period = period_now(p->t.family);
	a = frag_account(c.family, c.share);
	if (!a)
		return -DROP_FRAG_LIMIT;
	if (decision >= 0 && !charge(&c, size_held(kern, p)))
		decision = -DROP_FRAG_LIMIT;
	fragment_span(skb, p, &span);
	frag_init(&f, p, FROM_POD);
	f.verdict = fragment_verdict(decision);
	f.period = c.period;
	f.next = span.to;
	f.number = __sync_fetch_and_add(&a->fragments, 1);
	c.seen = f.seen;
	/* If it passes though no first one is on record, it is one out of order: charged until the kernel has given it up. */
	opens = first || (ep->flags & (EP_BESIDE | EP_BESIDE_BEFORE));
	err = note_fragment(&f, &span, first, opens, &c);
	if (err || f.state == FRAGMENT_COMPLETE)
		discharge(&c);
	return err && decision >= 0 ? err : decision;
}
