/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From bytes to struct pkt: the general parser. It copies headers through a loader, so that TC and netfilter programs
 * share it. In front of it is a fast path (parse_fast.h). Both must agree; packet tables in bpf/ test them against each
 * other. */
#pragma once
#include <linux/if_ether.h>
#include "options.h"
#include "packet.h"

extern int bpf_dynptr_from_skb(struct __sk_buff *skb, __u64 flags, struct bpf_dynptr *ptr) __ksym;

struct ipv4_hdr {
	__u8 ver_ihl, tos;
	__be16 len_be, id_be, frag_be;
	__u8 ttl, proto;
	__be16 csum;
	__u32 src, dst;
};

struct ipv6_hdr {
	__u8 ver, tc[3];
	__be16 len_be;
	__u8 next, hop;
	__u32 src[4], dst[4];
};

/* The first 16 bytes of any transport header we look at. */
struct l4_hdr {
	__be16 a_be, b_be; /* ports; ICMP: type and code, checksum */
	__be16 c_be, d_be; /* TCP: sequence; ICMP: identifier, sequence */
	__be32 ack_be;
	__u8 off, flags; /* TCP; SCTP: type of the first chunk, its flags */
	__be16 window_be;
};

#define MAX_EXT_HEADERS 6

/* Where bytes are read from: the packet of a TC program, or a dynptr on that of a netfilter program. */
struct loader {
	struct __sk_buff *skb;
	struct bpf_dynptr *dyn;
};

static __always_inline int load(const struct loader *l, __u32 off, void *to, __u32 len)
{
	if (l->dyn)
		return bpf_dynptr_read(to, len, l->dyn, off, 0);
	return bpf_skb_load_bytes(l->skb, off, to, len);
}

/* What carries a packet that it is about. ICMPv6: every type below 128 (RFC 4443, 2.1), as the kernel's conntrack sees it,
 * which calls a message of any of them related to the flow that it quotes. */
static __always_inline bool icmp_is_error(__u8 family, __u8 type)
{
	if (family == 4)
		return type == 3 || type == 4 || type == 5 || type == 11 || type == 12;
	return type < 128;
}

static __always_inline bool icmp_is_echo_request(__u8 family, __u8 type)
{
	return type == (family == 4 ? 8 : 128);
}

static __always_inline bool icmp_is_echo_reply(__u8 family, __u8 type)
{
	return type == (family == 4 ? 0 : 129);
}

/* Whether a packet can begin a flow. Of ICMP messages an echo request has answers of another type. In a flow that another one
 * begins, the other end's own messages of its type would pass as answers; so each of them is judged for itself. */
static __always_inline bool opens_flow(const struct pkt *p)
{
	return !is_icmp(&p->t) || icmp_is_echo_request(p->t.family, p->l4 >> 8);
}

/* The identifier stands at the requester's end, the next number at the other: no request of one side has the ends of a
 * request of the other, whatever their identifiers, nor those of a message that is no echo. */
static __always_inline void set_icmp_ports(struct tuple *t, __u16 type_code, __u16 id)
{
	bool request = icmp_is_echo_request(t->family, type_code >> 8);
	bool reply = icmp_is_echo_reply(t->family, type_code >> 8);

	t->sport = request ? id : reply ? id + 1 : type_code;
	t->dport = reply ? id : request ? id + 1 : type_code;
}

/* Fills in ports and what policy matches from the transport header. */
static __always_inline void set_l4(struct pkt *p, const struct l4_hdr *h)
{
	__u8 proto = p->t.proto;

	if (has_ports(proto)) {
		p->t.sport = bpf_ntohs(h->a_be);
		p->t.dport = p->l4 = bpf_ntohs(h->b_be);
		if (proto == PROTO_TCP) {
			p->tcp = h->flags;
			p->tcp_len = (h->off >> 4) * 4;
		} else if (proto == PROTO_SCTP) {
			p->chunk = h->off;
		}
		return;
	}
	if (is_icmp(&p->t)) {
		__u16 tc = bpf_ntohs(h->a_be);

		p->l4 = tc;
		set_icmp_ports(&p->t, tc, bpf_ntohs(h->c_be));
		if (icmp_is_error(p->t.family, tc >> 8))
			p->flags |= PKT_ICMP_ERROR;
		return;
	}
	p->l4 = proto;
}

/* Shortest transport header that must be there. */
static __always_inline __u32 l4_min(const struct pkt *p)
{
	__u8 proto = p->t.proto;

	if (proto == PROTO_TCP || proto == PROTO_SCTP)
		return 16; /* the bytes we read; TCP's rest is checked by its data offset, SCTP's is a chunk */
	if (proto == PROTO_UDP || is_icmp(&p->t))
		return 8;
	return 0;
}

/* Reads the transport header at off. `room` bytes from there on are inside the IP payload. */
static __always_inline int parse_l4(const struct loader *l, struct pkt *p, __u32 off, __u32 room)
{
	struct l4_hdr h = {};
	__u32 min = l4_min(p);

	p->l4_off = off;
	p->l4_len = room > 65535 ? 65535 : room;
	if (p->flags & PKT_LATER_FRAGMENT)
		return 0;
	if (room < min)
		return -DROP_TRUNCATED;
	if (min == 16) {
		if (load(l, off, &h, 16))
			return -DROP_TRUNCATED;
		if (p->t.proto == PROTO_TCP && ((h.off >> 4) < 5 || (__u32)(h.off >> 4) * 4 > room))
			return -DROP_BAD_HEADER;
	} else if (min) {
		if (load(l, off, &h, 8))
			return -DROP_TRUNCATED;
	}
	set_l4(p, &h);
	return 0;
}

/* The length field of an IP header. Of segments that are too large for it (BIG TCP) it is 0, and the length is
 * all there is. */
static __always_inline __u32 ip_len(__be16 len_be, __u32 there)
{
	return !len_be && there > 65535 ? there : bpf_ntohs(len_be);
}

/* A fragment that starts 8 bytes into a TCP header would write over the flags that were judged (RFC 3128). No sender
 * makes such, nor IPv6 fragments of fragments. */
static __always_inline int parse_ipv4(const struct loader *l, struct pkt *p, __u32 off, __u32 total)
{
	struct ipv4_hdr ip;
	__u32 hlen, len;
	__u16 frag;

	if (load(l, off, &ip, sizeof(ip)))
		return -DROP_TRUNCATED;
	hlen = (ip.ver_ihl & 15) * 4;
	len = ip_len(ip.len_be, total - off);
	if ((ip.ver_ihl >> 4) != 4 || hlen < 20 || len < hlen)
		return -DROP_BAD_HEADER;
	if (off + len > total)
		return -DROP_TRUNCATED;
	p->t.family = 4;
	p->t.src[0] = ip.src;
	p->t.dst[0] = ip.dst;
	p->t.proto = ip.proto;
	p->ttl = ip.ttl;
	frag = bpf_ntohs(ip.frag_be);
	if (frag & 0x3fff) {
		if ((frag & 0x1fff) == 1 && ip.proto == PROTO_TCP)
			return -DROP_BAD_HEADER;
		p->frag_id = bpf_ntohs(ip.id_be);
		p->flags |= frag & 0x1fff ? PKT_LATER_FRAGMENT : PKT_FIRST_FRAGMENT;
	}
	return parse_l4(l, p, off + hlen, len - hlen);
}

/* Hop-by-hop, routing and destination options, fragment and authentication headers, at most MAX_EXT_HEADERS. */
static __always_inline int parse_ipv6(const struct loader *l, struct pkt *p, __u32 off, __u32 total)
{
	struct ipv6_hdr ip;
	bool fragmented = false;
	__u32 end, at;
	__u8 next;

	if (load(l, off, &ip, sizeof(ip)))
		return -DROP_TRUNCATED;
	if ((ip.ver >> 4) != 6)
		return -DROP_BAD_HEADER;
	end = off + sizeof(ip) + ip_len(ip.len_be, total - off - sizeof(ip));
	if (end > total)
		return -DROP_TRUNCATED;
	p->t.family = 6;
	__builtin_memcpy(p->t.src, ip.src, 16);
	__builtin_memcpy(p->t.dst, ip.dst, 16);
	p->ttl = ip.hop;
	next = ip.next;
	at = off + sizeof(ip);
	for (int i = 0; i < MAX_EXT_HEADERS; i++) {
		__u8 h[8];

		if (next != PROTO_HOPOPTS && next != PROTO_ROUTING && next != PROTO_DSTOPTS && next != PROTO_FRAGMENT &&
		    next != PROTO_AH)
			break;
		if (at + 8 > end || load(l, at, h, 8))
			return -DROP_TRUNCATED;
		if (next == PROTO_FRAGMENT) {
			__u16 frag = (__u16)h[2] << 8 | h[3];

			if (fragmented || ((frag & 0xfff8) == 8 && h[0] == PROTO_TCP))
				return -DROP_BAD_HEADER;
			fragmented = true;
			p->frag_id = bpf_ntohl(*(__u32 *)&h[4]);
			/* A packet of one fragment (RFC 6946), too: the kernel puts it together with others of its number. */
			p->flags |= frag & 0xfff8 ? PKT_LATER_FRAGMENT : PKT_FIRST_FRAGMENT;
			at += 8;
			next = h[0];
			if (p->flags & PKT_LATER_FRAGMENT)
				break;
			continue;
		}
		if (next == PROTO_ROUTING && h[3])
			return -DROP_SOURCE_ROUTE; /* segments left: it is for somebody else than it says */
		at += next == PROTO_AH ? (h[1] + 2) * 4 : (h[1] + 1) * 8;
		next = h[0];
	}
	if (next == PROTO_HOPOPTS || next == PROTO_ROUTING || next == PROTO_DSTOPTS || next == PROTO_FRAGMENT ||
	    next == PROTO_AH) {
		if (!(p->flags & PKT_LATER_FRAGMENT))
			return -DROP_EXT_HEADERS;
	}
	if (at > end)
		return -DROP_TRUNCATED;
	p->t.proto = next;
	return parse_l4(l, p, at, end - at);
}

/* Discovery that only ever concerns the link: MLD (130-132, 143), RS, NS, NA, to a link-local or link-multicast address.
 * Anything else of these types is judged as other ICMPv6. */
static __always_inline void mark_nd(struct pkt *p)
{
	__u8 type = p->l4 >> 8;
	__u32 hi = bpf_ntohl(p->t.dst[0]);

	if (p->t.proto != PROTO_ICMPV6 || p->flags)
		return;
	if (!(type >= 130 && type <= 133) && type != 135 && type != 136 && type != 143)
		return;
	if ((hi >> 16) == 0xff02 || (hi >> 22) == (0xfe800000u >> 22))
		p->flags |= PKT_LINK_LOCAL_ND;
}

/* A solicitation or an advertisement that no router has forwarded, so the node's own if it is on its way to a pod. The answer to a pod's
 * solicitation goes to the pod's own address. */
static __always_inline bool from_the_link(const struct pkt *p)
{
	__u8 type = p->l4 >> 8;

	return p->t.proto == PROTO_ICMPV6 && !p->flags && p->ttl == 255 && (type == 135 || type == 136);
}

/* The result of the general parser for a frame: 0, or a drop reason. ARP is for the caller. */
__noinline int parse_slow(struct __sk_buff *skb, struct pkt *p)
{
	struct loader l = { .skb = skb };
	__be16 ethertype;
	int err;

	if (!p)
		return -DROP_BAD_HEADER;
	__builtin_memset(p, 0, sizeof(*p));
	if (bpf_skb_load_bytes(skb, offsetof(struct ethhdr, h_proto), &ethertype, 2))
		return -DROP_TRUNCATED;
	if (ethertype == bpf_htons(ETH_P_IP)) {
		err = parse_ipv4(&l, p, sizeof(struct ethhdr), skb->len);
		return err ? err : check_options(skb);
	}
	if (ethertype != bpf_htons(ETH_P_IPV6))
		return -DROP_NOT_IP;
	err = parse_ipv6(&l, p, sizeof(struct ethhdr), skb->len);
	if (!err)
		mark_nd(p);
	return err;
}
