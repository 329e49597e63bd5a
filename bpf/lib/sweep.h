/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Expiry of flows: programs that walk over the flow maps and remove what has expired. */
#pragma once
#include "walk.h"

static __always_inline __u32 timeout_of(__u8 proto, __u8 family, const struct ct_entry *e)
{
	if (proto == PROTO_TCP) {
		__u8 fins = e->state & (CT_FIN_OPENER | CT_FIN_REPLY);

		/* One FIN closes one direction. The other one may stay in use without limit. */
		if (e->state & (CT_RST | CT_REVOKED) || fins == (CT_FIN_OPENER | CT_FIN_REPLY))
			return cfg.timeout_tcp_fin;
		return e->state & CT_OPEN || e->flags & CT_MIDFLOW ? cfg.timeout_tcp_established : cfg.timeout_tcp_syn;
	}
	/* Answered, and nothing sent by the opener since: a query. */
	if (proto == PROTO_UDP && (e->state & (CT_REPLIED | CT_OPEN)) == CT_REPLIED)
		return cfg.timeout_udp > 3 ? cfg.timeout_udp / 4 : 1;
	if (proto == PROTO_UDP)
		return cfg.timeout_udp;
	if (proto == (family == 4 ? PROTO_ICMP : PROTO_ICMPV6))
		return cfg.timeout_icmp;
	return e->state & CT_RST ? cfg.timeout_tcp_fin : cfg.timeout_other;
}

static __always_inline bool expired(__u8 proto, __u8 family, const struct ct_entry *e)
{
	__u32 hz = cfg.hz ? cfg.hz : 250, now = clock_now();
	__u64 age = (__u64)(now - e->seen) << 4;

	/* A packet on another CPU may just have written a later time than ours. */
	return (__s32)(now - e->seen) >= 0 && age >= (__u64)timeout_of(proto, family, e) * hz;
}

/* Counts a flow, and says whether it has expired. If so it is taken out of the count of its share, and is to be removed. */
static __always_inline bool sweep_out(__u8 proto, __u8 family, struct ct_entry *e)
{
	__u32 kind = !e->kept;
	struct sweep *w = bpf_map_lookup_elem(&swept, &kind);
	bool out = expired(proto, family, e);

	if (w)
		w->entries++;
	if (w && out)
		w->expired++;
	if (out)
		let_go(e);
	return out;
}

static __always_inline void sweep_end(void)
{
	__u32 first = 0;
	struct sweep *w = bpf_map_lookup_elem(&swept, &first);

	if (w)
		w->runs++;
}

WALK_PROGRAM(sweep4, 4, sweep_out, sweep_end)
WALK_PROGRAM(sweep6, 6, sweep_out, sweep_end)
