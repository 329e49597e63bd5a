/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Further sources: addresses that are not a pod's own and that it may send from, because it lists them and the administrator
 * lets pods do that (semantics §15). Such a source does not make the pod an owner of the address: no record of other
 * endpoints' flows allows the packet, and it does not go by the shortcut. */
#pragma once
#include "endpoint.h"
#include "policy.h"

/* Whether no packet may have the source, whatever is listed: unspecified, loopback, link-local, multicast, reserved, and
 * IPv4 inside IPv6. */
static __always_inline bool never_a_source(const struct tuple *t)
{
	const __u8 *a = (const __u8 *)t->src;

	if (t->family == 4)
		return a[0] == 0 || a[0] == 127 || a[0] >= 224 || (a[0] == 169 && a[1] == 254);
	if (a[0] == 0xff || (a[0] == 0xfe && (a[1] & 0xc0) == 0x80))
		return true;
	return !t->src[0] && !t->src[1] && (!t->src[2] || t->src[2] == bpf_htonl(0xffff));
}

/* Whether the source is in a prefix that the endpoint of the interface lists, and belongs to no endpoint, node or
 * Service. */
__noinline int lists_source(const struct tuple *t, __u32 ifindex)
{
	struct source_key k = {};
	struct addr_info info;

	if (!t || never_a_source(t))
		return 0;
	k.prefixlen = t->family == 4 ? 96 : 192;
	k.ifindex = ifindex;
	k.family = t->family;
	__builtin_memcpy(k.addr, t->src, 16);
	if (!bpf_map_lookup_elem(&sources, &k))
		return 0;
	return !addr_lookup(t->family, t->src, &info) || !(info.flags & (ADDR_ENDPOINT | ADDR_HOST | ADDR_OWNED));
}

/* Whether a packet that has come from the endpoint has a further source. */
static __always_inline bool has_further_source(const struct endpoint *ep, const struct tuple *t)
{
	return (ep->flags & EP_SOURCES) && !owns(ep, t, false) && lists_source(t, ep->ifindex);
}

/* Whether the flow with the packet's ends is one in which the endpoint has no part. Others may have flows with the same
 * address. */
__noinline int is_of_others(const struct endpoint *ep, const struct pkt *p)
{
	struct ct_entry *e;

	if (!ep || !p)
		return 1;
	e = ct_find(&p->t);
	return e && (from_opener(&p->t, e) ? e->opener_if : e->responder_if) != ep->ifindex;
}

/* A packet with a further source, whose ends are those of a flow in which the endpoint has no part: judged by egress policy
 * as if it were alone, and kept nowhere. */
__noinline int judge_alone(struct endpoint *ep, const struct pkt *p, __u32 len)
{
	struct addr_info to;
	struct flow f;

	if (!ep || !p)
		return -DROP_POLICY;
	if (addr_lookup(p->t.family, p->t.dst, &to) && (to.flags & (ADDR_MAY_TRANSLATE | ADDR_HOST)))
		return PASS_PENDING;
	flow_of_ends(&f, &p->t, p->l4, true, len);
	return judge_side(ep, &f, 1, 0) ? PASS : denied(&f);
}
