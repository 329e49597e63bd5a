/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fast path in front of the general parser (parse.h), for nearly all packets. */
#pragma once
#include "parse.h"

/* TCP and UDP without options, extension headers or fragments, whole headers in the linear part. Returns 1 if it is
 * such a packet and p is filled in, 0 if the general parser must look. */
static __always_inline int parse_fast(struct __sk_buff *skb, struct pkt *p)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;
	struct l4_hdr *h;

	if (data + sizeof(*eth) + sizeof(struct ipv4_hdr) + 8 > end)
		return 0;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		struct ipv4_hdr *ip = data + sizeof(*eth);
		__u32 len = bpf_ntohs(ip->len_be);

		if (ip->ver_ihl != 0x45 || (ip->frag_be & bpf_htons(0x3fff)) || len < 28 ||
		    sizeof(*eth) + len > skb->len)
			return 0;
		h = (void *)(ip + 1);
		p->t.family = 4;
		p->t.src[0] = ip->src;
		p->t.dst[0] = ip->dst;
		p->t.proto = ip->proto;
		p->ttl = ip->ttl;
		p->l4_off = sizeof(*eth) + sizeof(*ip);
		if (ip->proto == PROTO_TCP) {
			if ((void *)(h + 1) > end || len < 40 || (h->off >> 4) < 5 || (h->off >> 4) * 4u + 20 > len)
				return 0;
			p->tcp = h->flags;
			p->tcp_len = (h->off >> 4) * 4;
		} else if (ip->proto != PROTO_UDP) {
			return 0;
		}
	} else if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6_hdr *ip = data + sizeof(*eth);
		__u32 len;

		h = (void *)(ip + 1);
		if ((void *)h + 8 > end)
			return 0;
		len = bpf_ntohs(ip->len_be);
		if ((ip->ver >> 4) != 6 || len < 8 || sizeof(*eth) + sizeof(*ip) + len > skb->len)
			return 0;
		p->t.family = 6;
		__builtin_memcpy(p->t.src, ip->src, 16);
		__builtin_memcpy(p->t.dst, ip->dst, 16);
		p->t.proto = ip->next;
		p->ttl = ip->hop;
		p->l4_off = sizeof(*eth) + sizeof(*ip);
		if (ip->next == PROTO_TCP) {
			if ((void *)(h + 1) > end || len < 20 || (h->off >> 4) < 5 || (h->off >> 4) * 4u > len)
				return 0;
			p->tcp = h->flags;
			p->tcp_len = (h->off >> 4) * 4;
		} else if (ip->next != PROTO_UDP) {
			return 0;
		}
	} else {
		return 0;
	}
	p->t.sport = bpf_ntohs(h->a_be);
	p->t.dport = p->l4 = bpf_ntohs(h->b_be);
	return 1;
}
