/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Cutting a live TCP connection that policy denies now (D-11): both ends get a RST. The packet that was denied is cut
 * down to its TCP header, sent back as a RST to its sender, then turned round and passed on as a RST to its receiver. */
#pragma once
#include <linux/if_ether.h>
#include "conntrack.h"
#include "parse.h"

struct tcp_hdr {
	__be16 sport_be, dport_be;
	__be32 seq_be, ack_be;
	__u8 off, flags;
	__be16 window_be, csum_be, urg_be;
};

/* The pseudo-header that a TCP checksum covers. */
struct pseudo {
	__u32 src[4], dst[4];
	__be32 len_be, proto_be;
};

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Whether the device is to fill in the TCP checksum, the field holding the pseudo header's sum only. No helper
 * says so, but l4_csum_replace leaves such a field alone. The field is overwritten later in any case. */
static __always_inline bool csum_is_partial(struct __sk_buff *skb, __u32 off)
{
	__u16 before = 0, after = 0;

	bpf_skb_load_bytes(skb, off, &before, 2);
	bpf_l4_csum_replace(skb, off, 0, 0x1234, 2);
	bpf_skb_load_bytes(skb, off, &after, 2);
	return before == after;
}

static __always_inline int write_tcp(struct __sk_buff *skb, const struct pkt *p, struct tcp_hdr *h, bool partial)
{
	struct pseudo ps = { .len_be = bpf_htonl(sizeof(*h)), .proto_be = bpf_htonl(PROTO_TCP) };
	__s64 sum;

	__builtin_memcpy(ps.src, p->t.src, 16);
	__builtin_memcpy(ps.dst, p->t.dst, 16);
	h->csum_be = 0;
	sum = bpf_csum_diff(NULL, 0, (__be32 *)&ps, sizeof(ps), 0);
	if (partial) {
		h->csum_be = fold(sum);
	} else {
		sum = bpf_csum_diff(NULL, 0, (__be32 *)h, sizeof(*h), sum);
		h->csum_be = ~fold(sum);
	}
	return bpf_skb_store_bytes(skb, p->l4_off, h, sizeof(*h), 0);
}

/* Exchanges the ends of Ethernet and IP headers. Checksums stay the same. */
static __always_inline int swap_ends(struct __sk_buff *skb, __u8 family)
{
	__u8 mac[12], addrs[32];
	__u32 n = family == 4 ? 4 : 16, at = sizeof(struct ethhdr) + (family == 4 ? 12 : 8);

	if (bpf_skb_load_bytes(skb, 0, mac, 6) || bpf_skb_load_bytes(skb, 6, mac + 6, 6))
		return -1;
	bpf_skb_store_bytes(skb, 0, mac + 6, 6, 0);
	bpf_skb_store_bytes(skb, 6, mac, 6, 0);
	if (n == 4) {
		if (bpf_skb_load_bytes(skb, at, addrs, 8))
			return -1;
		bpf_skb_store_bytes(skb, at, addrs + 4, 4, 0);
		return bpf_skb_store_bytes(skb, at + 4, addrs, 4, 0);
	}
	if (bpf_skb_load_bytes(skb, at, addrs, 32))
		return -1;
	bpf_skb_store_bytes(skb, at, addrs + 16, 16, 0);
	return bpf_skb_store_bytes(skb, at + 16, addrs, 16, 0);
}

/* Bytes behind the TCP header, without the padding of a short frame. */
static __always_inline __u32 payload_len(struct __sk_buff *skb, const struct pkt *p)
{
	__u32 at = sizeof(struct ethhdr) + (p->t.family == 4 ? 2 : 4), start = p->l4_off + p->tcp_len, end;
	__u32 header = sizeof(struct ethhdr) + (p->t.family == 4 ? 0 : sizeof(struct ipv6_hdr));
	__be16 len = 0;

	bpf_skb_load_bytes(skb, at, &len, 2);
	end = header + ip_len(len, skb->len - header);
	return end > start ? end - start : 0;
}

/* Length fields after the payload is gone. */
static __always_inline int set_length(struct __sk_buff *skb, const struct pkt *p)
{
	__u16 len = bpf_htons(p->l4_off + sizeof(struct tcp_hdr) - sizeof(struct ethhdr)), old;

	if (p->t.family == 6) {
		len = bpf_htons(p->l4_off + sizeof(struct tcp_hdr) - sizeof(struct ethhdr) - sizeof(struct ipv6_hdr));
		return bpf_skb_store_bytes(skb, sizeof(struct ethhdr) + 4, &len, 2, 0);
	}
	if (bpf_skb_load_bytes(skb, sizeof(struct ethhdr) + 2, &old, 2))
		return -1;
	bpf_l3_csum_replace(skb, sizeof(struct ethhdr) + 10, old, len, 2);
	return bpf_skb_store_bytes(skb, sizeof(struct ethhdr) + 2, &len, 2, 0);
}

/* Whether a packet of a revoked flow may become a reset: one in a second of each direction. The numbers in a reset are the sender's, so
 * more of them would be a way to talk. One is enough if its number is the one that the receiver expects; otherwise the receiver
 * says in a challenge acknowledgement which one that is, and that becomes a reset with this number (RFC 5961). The time is in
 * the stamp of the end that has sent the packet, which is not read while the flow is revoked. */
static __always_inline bool reset_is_due(const struct tuple *t)
{
	__u32 now = clock_now() | RESET_AT, second = (cfg.hz ? cfg.hz : 250) >> 4, before, *at;
	struct ct_entry *e = ct_find(t);

	if (!e || !(e->state & CT_REVOKED))
		return false;
	at = from_opener(t, e) ? &e->egress : &e->ingress;
	before = *(volatile __u32 *)at;
	if ((before & RESET_AT) && ((now - before + 1) & ~RESET_AT) <= second + 1)
		return false;
	if (__sync_val_compare_and_swap(at, before, now) != before)
		return false; /* another CPU makes it */
	if (ct_is(t, e))
		return true;
	/* Another flow has got the memory. It gets its stamp back, or its next packet is judged again. */
	__sync_val_compare_and_swap(at, now, before);
	return false;
}

/* Whether a packet has nothing between its fixed IP header and TCP. IPv4 options and IPv6 extension headers may hold what the sender likes,
 * up to the whole packet. */
static __always_inline bool is_plain(const struct pkt *p)
{
	return p->l4_off == sizeof(struct ethhdr) + (p->t.family == 4 ? 20 : 40);
}

/* Sends a reset back to the sender. Returns 0 if the packet is now a RST to be passed on to its receiver. One that is not plain is not: it
 * would carry more than its numbers. Its receiver gets a reset when it sends itself, or by the next packet that is plain. */
__noinline int reset_flow(struct __sk_buff *skb, struct pkt *p, __u32 hook)
{
	struct tcp_hdr in, out = { .off = 5 << 4, .flags = TCP_RST | TCP_ACK };
	__u32 payload, ends;
	struct pkt back;
	bool partial;

	if (!p || (p->tcp & TCP_RST) || (p->flags & ~PKT_FURTHER_SOURCE))
		return -1;
	if (!reset_is_due(&p->t) || bpf_skb_load_bytes(skb, p->l4_off, &in, sizeof(in)))
		return -1;
	partial = csum_is_partial(skb, p->l4_off + offsetof(struct tcp_hdr, csum_be));
	payload = payload_len(skb, p);
	ends = !!(p->tcp & TCP_SYN) + !!(p->tcp & TCP_FIN);
	if (bpf_skb_change_tail(skb, p->l4_off + sizeof(in), 0) || set_length(skb, p))
		return -1;
	/* Without the judge bit: a RST that is sent back on the node would be judged as a packet of its new sender. */
	skb->mark = (skb->mark & ~cfg.mark_judge) | cfg.mark_own | cfg.mark_seen;

	out.sport_be = in.dport_be;
	out.dport_be = in.sport_be;
	out.seq_be = in.ack_be;
	out.ack_be = bpf_htonl(bpf_ntohl(in.seq_be) + payload + ends);
	back = *p;
	__builtin_memcpy(back.t.src, p->t.dst, 16);
	__builtin_memcpy(back.t.dst, p->t.src, 16);
	if (swap_ends(skb, p->t.family) || write_tcp(skb, &back, &out, partial))
		return -1;
	bpf_clone_redirect(skb, skb->ifindex, hook == FROM_POD ? 0 : BPF_F_INGRESS);
	if (!is_plain(p))
		return -1;

	out.sport_be = in.sport_be;
	out.dport_be = in.dport_be;
	out.seq_be = in.seq_be;
	out.ack_be = in.ack_be;
	if (swap_ends(skb, p->t.family) || write_tcp(skb, p, &out, partial))
		return -1;
	return 0;
}

/* Whether a packet with our mark is a reset that we made: bare, and of a flow that was revoked. Rules of others may set the
 * bit in any packet. */
__noinline int own_reset(struct __sk_buff *skb, const struct pkt *p)
{
	struct ct_entry *e;

	if (!p || p->t.proto != PROTO_TCP || p->flags || p->tcp != (TCP_RST | TCP_ACK))
		return 0;
	if (p->tcp_len != sizeof(struct tcp_hdr) || payload_len(skb, p))
		return 0;
	e = ct_find(&p->t);
	return e && (e->state & CT_REVOKED);
}
