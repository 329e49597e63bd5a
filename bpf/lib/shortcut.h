/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Pod to pod on one node, past the host stack: changes the packet as a router would, and redirects it into the peer. */
#pragma once
#include "endpoint.h"
#include "parse.h"

/* Whether the packet, or each segment the device would make of it, fits the peer's MTU. */
static __always_inline bool fits(struct __sk_buff *skb, const struct pkt *p, __u32 mtu)
{
	__u32 l3 = skb->len - sizeof(struct ethhdr);

	if (skb->gso_size)
		l3 = p->l4_off - sizeof(struct ethhdr) + (p->t.proto == PROTO_TCP ? p->tcp_len : 8) + skb->gso_size;
	return l3 <= mtu;
}

/* Returns the action, or TCX_NEXT if this packet needs the host stack after all. */
static __always_inline int send_across(struct __sk_buff *skb, const struct pkt *p)
{
	struct endpoint *peer = ready_endpoint(p->peer_if);
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;

	/* Without the pod's ifindex, the other fields about its side are not valid, or about to change. */
	if (!peer || !peer->peer_ifindex || p->ttl <= 1 || !fits(skb, p, peer->mtu))
		return TCX_NEXT;
	if (p->t.family == 4) {
		struct ipv4_hdr *ip = (void *)(eth + 1);
		__u32 sum;

		if ((void *)(ip + 1) > end)
			return TCX_NEXT;
		sum = bpf_ntohs(ip->csum) + 0x100; /* TTL less one: RFC 1624 */
		ip->csum = bpf_htons((sum & 0xffff) + (sum >> 16));
		ip->ttl--;
	} else {
		struct ipv6_hdr *ip = (void *)(eth + 1);

		if ((void *)(ip + 1) > end)
			return TCX_NEXT;
		ip->hop--;
	}
	__builtin_memcpy(eth->h_source, eth->h_dest, 6);
	__builtin_memcpy(eth->h_dest, peer->mac, 6);
	return bpf_redirect_peer(p->peer_if, 0);
}
