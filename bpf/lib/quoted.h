/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The packet that an ICMP error quotes. */
#pragma once
#include "parse.h"

/* IPv6 extension headers walked in what an ICMP error quotes. Behind more there is no flow to be found. */
#define MAX_QUOTED_HEADERS 3

/* The packet an ICMP error quotes: only its ends, for finding the flow. 8 bytes of its transport header must be there.
 * Returns 0, or a drop reason if it cannot be read. */
__noinline int parse_quoted(struct __sk_buff *skb, const struct pkt *outer, struct tuple *t)
{
	__u32 off, l4;
	struct l4_hdr h = {};

	if (!t || !outer)
		return -DROP_BAD_HEADER;
	off = outer->l4_off + 8;
	__builtin_memset(t, 0, sizeof(*t));
	t->family = outer->t.family;
	if (outer->t.family == 4) {
		struct ipv4_hdr ip;

		if (bpf_skb_load_bytes(skb, off, &ip, sizeof(ip)))
			return -DROP_TRUNCATED;
		if ((ip.ver_ihl >> 4) != 4 || (ip.ver_ihl & 15) < 5 || (bpf_ntohs(ip.frag_be) & 0x1fff))
			return -DROP_BAD_HEADER;
		t->src[0] = ip.src;
		t->dst[0] = ip.dst;
		t->proto = ip.proto;
		l4 = off + (ip.ver_ihl & 15) * 4;
	} else {
		struct ipv6_hdr ip;
		__u8 e[8];

		if (bpf_skb_load_bytes(skb, off, &ip, sizeof(ip)))
			return -DROP_TRUNCATED;
		if ((ip.ver >> 4) != 6)
			return -DROP_BAD_HEADER;
		__builtin_memcpy(t->src, ip.src, 16);
		__builtin_memcpy(t->dst, ip.dst, 16);
		t->proto = ip.next;
		l4 = off + sizeof(ip);
		for (int i = 0; i < MAX_QUOTED_HEADERS; i++) {
			if (t->proto != PROTO_HOPOPTS && t->proto != PROTO_ROUTING && t->proto != PROTO_DSTOPTS &&
			    t->proto != PROTO_FRAGMENT)
				break;
			if (bpf_skb_load_bytes(skb, l4, e, 8))
				return -DROP_TRUNCATED;
			if (t->proto == PROTO_FRAGMENT && (e[2] || (e[3] & 0xf8)))
				return -DROP_BAD_HEADER;
			l4 += t->proto == PROTO_FRAGMENT ? 8 : (e[1] + 1) * 8;
			t->proto = e[0];
		}
	}
	/* The kernel cuts off what is behind the packet. Of an error in fragments the quote would then be what the later ones have there. */
	if (l4 + 8 > outer->l4_off + outer->l4_len || bpf_skb_load_bytes(skb, l4, &h, 8))
		return -DROP_TRUNCATED;
	if (has_ports(t->proto)) {
		t->sport = bpf_ntohs(h.a_be);
		t->dport = bpf_ntohs(h.b_be);
	} else if (is_icmp(t)) {
		__u16 tc = bpf_ntohs(h.a_be);

		set_icmp_ports(t, tc, bpf_ntohs(h.c_be));
	}
	return 0;
}
