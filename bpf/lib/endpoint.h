/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Local endpoints: by interface, and whether an address is theirs. */
#pragma once
#include "packet.h"

/* The endpoint whose host-side interface this is, or NULL. It may not be ready. */
static __always_inline struct endpoint *endpoint_by_ifindex(__u32 ifindex)
{
	__u32 slot = ifindex & (ENDPOINTS - 1);
	struct endpoint *ep = bpf_map_lookup_elem(&endpoints, &slot);

	if (ep && ep->ifindex == ifindex)
		return ep;
	return bpf_map_lookup_elem(&endpoints_more, &ifindex);
}

static __always_inline struct endpoint *ready_endpoint(__u32 ifindex)
{
	struct endpoint *ep = endpoint_by_ifindex(ifindex);

	return ep && (ep->flags & EP_READY) ? ep : NULL;
}

/* The entry of an address, or NULL: it is in no set and no endpoint's. */
static __always_inline struct addr_info *addr_lookup(__u8 family, const __u32 *addr)
{
	struct addr_info *info;

	if (family == 4) {
		struct net4 n = { .prefixlen = 32 };
		struct ip4 k;

		*(__u32 *)k.addr = addr[0];
		info = bpf_map_lookup_elem(&ip4_host, &k);
		if (info)
			return info;
		*(__u32 *)n.addr = addr[0];
		return bpf_map_lookup_elem(&ip4_net, &n);
	} else {
		struct net6 n = { .prefixlen = 128 };
		struct ip6 k;

		__builtin_memcpy(k.addr, addr, 16);
		info = bpf_map_lookup_elem(&ip6_host, &k);
		if (info)
			return info;
		__builtin_memcpy(n.addr, addr, 16);
		return bpf_map_lookup_elem(&ip6_net, &n);
	}
}

/* The class of the source or (dst) the destination. A function of its own, like the next one, to keep its keys off the
 * stack of its callers. */
__noinline __u32 class_of_end(const struct tuple *t, __u32 dst)
{
	struct addr_info *info;

	if (!t)
		return 0;
	info = addr_lookup(t->family, dst ? t->dst : t->src);
	return info ? info->class : t->family == 4 ? 0 : 1;
}

/* Whether an address is a further one of the endpoint's own. */
__noinline int owns_further(const struct tuple *t, __u32 dst, __u32 ifindex)
{
	struct addr_info *info;

	if (!t)
		return 0;
	info = addr_lookup(t->family, dst ? t->dst : t->src);
	return info && (info->flags & ADDR_ENDPOINT) && info->ifindex == ifindex;
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
