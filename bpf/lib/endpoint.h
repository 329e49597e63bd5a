/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Local endpoints: by interface, and whether an address is theirs. */
#pragma once
#include "packet.h"

/* The endpoint whose host-side interface this is, or NULL. It may not be ready. */
static __always_inline struct endpoint *endpoint_by_ifindex(__u32 ifindex)
{
	__u32 place = ifindex & (ENDPOINTS - 1), *further;
	struct endpoint *ep = bpf_map_lookup_elem(&endpoints, &place);

	if (ep && ep->ifindex == ifindex)
		return ep;
	further = bpf_map_lookup_elem(&endpoint_places, &ifindex);
	if (!further)
		return NULL;
	place = *further;
	ep = bpf_map_lookup_elem(&endpoints, &place);
	return ep && ep->ifindex == ifindex ? ep : NULL;
}

static __always_inline struct endpoint *ready_endpoint(__u32 ifindex)
{
	struct endpoint *ep = endpoint_by_ifindex(ifindex);

	return ep && (ep->flags & EP_READY) ? ep : NULL;
}

/* The check of a single address. The agent computes the same (bpf.HostInfoOf). It is against accidents: 256 IPv4 addresses have the same. */
static __always_inline __u32 address_check(__u8 family, const __u32 *addr)
{
	__u32 mixed = addr[0] * 0x9e3779b1;

	if (family != 4)
		mixed = (((mixed ^ addr[1]) * 0x9e3779b1 ^ addr[2]) * 0x9e3779b1 ^ addr[3]) * 0x9e3779b1;
	return mixed >> 8;
}

/* Copies the entry of a single address. False if there is none, or if it was removed since it was found, and its memory has another
 * address now. */
static __always_inline bool read_host(const struct host_info *host, __u32 check, struct addr_info *info)
{
	const volatile __u64 *word;
	__u64 first;
	__u32 ifindex;

	if (!host)
		return false;
	_Static_assert(offsetof(struct host_info, class) == 8 && offsetof(struct host_info, check) == 13, "one word");
	word = (const volatile __u64 *)&host->class;
	first = *word;
	ifindex = *(const volatile __u32 *)&host->ifindex;
	if (first >> 40 != check || *word >> 40 != check)
		return false;
	info->class = first;
	info->flags = (__u8)(first >> 32);
	info->ifindex = ifindex;
	return true;
}

/* Copies the entry of an address. False, and zeros: it has none, so it is in no set and no endpoint's. The agent may change the entry at
 * any time, so it is copied once. */
static __always_inline bool addr_lookup(__u8 family, const __u32 *addr, struct addr_info *info)
{
	const struct addr_info *found;

	__builtin_memset(info, 0, sizeof(*info));
	if (family == 4) {
		struct net4 n = { .prefixlen = 32 };
		struct ip4 k;

		*(__u32 *)k.addr = addr[0];
		if (read_host(bpf_map_lookup_elem(&ip4_host, &k), address_check(4, addr), info))
			return true;
		*(__u32 *)n.addr = addr[0];
		found = bpf_map_lookup_elem(&ip4_net, &n);
	} else {
		struct net6 n = { .prefixlen = 128 };
		struct ip6 k;

		__builtin_memcpy(k.addr, addr, 16);
		if (read_host(bpf_map_lookup_elem(&ip6_host, &k), address_check(6, addr), info))
			return true;
		__builtin_memcpy(n.addr, addr, 16);
		found = bpf_map_lookup_elem(&ip6_net, &n);
	}
	if (!found)
		return false;
	*info = *found; /* the kernel keeps the memory of a prefix that was replaced while programs may read it */
	return true;
}

/* The class of the source or (dst) the destination. A function of its own, like the next one, to keep its keys off the
 * stack of its callers. */
__noinline __u32 class_of_end(const struct tuple *t, __u32 dst)
{
	struct addr_info info;

	if (!t)
		return 0;
	return addr_lookup(t->family, dst ? t->dst : t->src, &info) ? info.class : t->family == 4 ? 0 : 1;
}

/* Whether an address is a further one of the endpoint's own. */
__noinline int owns_further(const struct tuple *t, __u32 dst, __u32 ifindex)
{
	struct addr_info info;

	if (!t)
		return 0;
	return addr_lookup(t->family, dst ? t->dst : t->src, &info) && (info.flags & ADDR_ENDPOINT) &&
	       info.ifindex == ifindex;
}

/* Whether the source (or, if dst, the destination) is one of ep's own. The first of each family is in the endpoint. */
static __always_inline bool owns(const struct endpoint *ep, const struct tuple *t, bool dst)
{
	const __u32 *addr = dst ? t->dst : t->src;
	__u8 family = t->family;

	if (family == 4) {
		if (addr[0] && *(__u32 *)ep->addr4 == addr[0])
			return true;
	} else {
		const __u32 *own = (const __u32 *)ep->addr6;

		if (own[0] && same_addr(own, addr))
			return true;
	}
	if (!(ep->flags & EP_MORE_ADDRS))
		return false;
	return owns_further(t, dst, ep->ifindex);
}
