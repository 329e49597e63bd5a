/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ARP and neighbour discovery from pods. The node makes a neighbour entry for every sender, and has room for 1,024
 * in all its namespaces together. So a pod may send for its own addresses only, and at a bounded rate. */
#pragma once
#include <linux/if_ether.h>
#include "endpoint.h"
#include "kernel.h"

/* At most this many messages at once, and afterwards one each interval. While an endpoint is not ready its addresses
 * are not known, and the rate alone bounds the entries. The node may drop the oldest when they are 5 s old: 110 such pods
 * have 990 by then. Of messages that leave no entry such a pod may send ten times as many. */
#define NEIGHBOUR_BURST 200
#define NEIGHBOUR_INTERVAL_NS 10000000ULL /* 100 a second */
#define UNREADY_BURST 4
#define UNREADY_INTERVAL_NS 1000000000ULL /* 1 a second */

struct arp_frame {
	__u8 to[6], from[6];
	__be16 ethertype_be;
	__be16 hardware_be, protocol_be;
	__u8 hardware_len, protocol_len;
	__be16 op_be;
	__u8 sender[6], sender_ip[4], target[6], target_ip[4];
};

static __always_inline struct neighbour *neighbour_at(__u32 ifindex)
{
	__u32 *further = bpf_map_lookup_elem(&endpoint_places, &ifindex);
	__u32 place = further ? *further : ifindex & (ENDPOINTS - 1);

	return bpf_map_lookup_elem(&neighbours, &place);
}

/* Whether the interface may send one more message now. CPUs that ask at the same time may both get the last one. */
static __always_inline bool within_rate(struct neighbour *n, bool ready, bool leaves_entry)
{
	__u64 interval = ready ? NEIGHBOUR_INTERVAL_NS : UNREADY_INTERVAL_NS;
	__u64 burst = ready ? NEIGHBOUR_BURST : UNREADY_BURST;
	__u64 now = bpf_ktime_get_ns(), next = n->next > now ? n->next : now;

	/* Messages from before it was ready do not make it wait longer than those of a ready one. */
	if (ready && next - now > burst * interval)
		next = now + (burst - 1) * interval;
	if (next - now > (burst - 1) * interval)
		return false;
	n->next = next + (ready || leaves_entry ? interval : interval / 10);
	return true;
}

static __always_inline int neighbour_verdict(struct neighbour *n, bool ready, bool leaves_entry)
{
	return within_rate(n, ready, leaves_entry) ? 0 : -DROP_NEIGHBOUR_RATE;
}

/* An ARP message of a pod: 0, or a drop reason. */
__noinline int arp_from_pod(struct __sk_buff *skb)
{
	struct endpoint *ep = ready_endpoint(skb->ifindex);
	struct neighbour *n = neighbour_at(skb->ifindex);
	struct tuple t = { .family = 4 };
	struct arp_frame a;

	if (!n || bpf_skb_load_bytes(skb, 0, &a, sizeof(a)))
		return -DROP_TRUNCATED;
	if (a.hardware_be != bpf_htons(1) || a.protocol_be != bpf_htons(ETH_P_IP) || a.hardware_len != 6 ||
	    a.protocol_len != 4)
		return -DROP_BAD_HEADER;
	for (int i = 0; i < 6; i++)
		if (a.sender[i] != a.from[i])
			return -DROP_NEIGHBOUR;
	__builtin_memcpy(t.src, a.sender_ip, 4);
	if (ep && t.src[0] && !owns(ep, &t, false))
		return -DROP_NEIGHBOUR;
	return neighbour_verdict(n, ep, t.src[0]);
}

/* The link-local address of a MAC: fe80::/64 and its EUI-64. */
static __always_inline bool is_eui64(const __u8 *addr, const __u8 *mac)
{
	return addr[8] == (mac[0] ^ 2) && addr[9] == mac[1] && addr[10] == mac[2] && addr[11] == 0xff &&
	       addr[12] == 0xfe && addr[13] == mac[3] && addr[14] == mac[4] && addr[15] == mac[5];
}

/* Whether a link-local address is the node's own on the pod's link: that of the MAC of the veth's host side. For the pod
 * it is the gateway's. */
static __always_inline bool is_gateway(struct __sk_buff *skb, const __u8 *addr)
{
	struct sk_buff *kern = bpf_cast_to_kern_ctx(skb);
	__u8 mac[6];

	return !bpf_probe_read_kernel(mac, sizeof(mac), kern->dev->dev_addr) && is_eui64(addr, mac);
}

/* Whether a link-local address may be the pod's: that of its MAC, or the first other one that it uses. */
static __always_inline bool own_link_local(struct __sk_buff *skb, struct neighbour *n, const struct endpoint *ep,
					   const struct tuple *t)
{
	const __u8 *addr = (const __u8 *)t->src;
	__u64 id = (__u64)t->src[3] << 32 | t->src[2];

	if (t->src[0] != bpf_htonl(0xfe800000) || t->src[1] || is_gateway(skb, addr))
		return false;
	if (is_eui64(addr, ep->mac))
		return true;
	if (!n->link_local)
		n->link_local = id;
	return n->link_local == id;
}

/* A message of neighbour or multicast-listener discovery of a pod: 0, or a drop reason. */
__noinline int nd_from_pod(struct __sk_buff *skb, struct pkt *p)
{
	struct endpoint *ep = ready_endpoint(skb->ifindex);
	struct neighbour *n = neighbour_at(skb->ifindex);
	bool sender;

	if (!p || !n)
		return -DROP_TRUNCATED;
	sender = p->t.src[0] | p->t.src[1] | p->t.src[2] | p->t.src[3];
	if (ep && sender && !own_link_local(skb, n, ep, &p->t) && !owns(ep, &p->t, false))
		return -DROP_NEIGHBOUR;
	/* Listener discovery makes no entry. */
	return neighbour_verdict(n, ep, sender && p->l4 >> 8 >= 133 && p->l4 >> 8 <= 136);
}
