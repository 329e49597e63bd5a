/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Expiry of flows, run by the agent: a walk over a flow map in the kernel, 85 ns an entry. */
#pragma once
#include "packet.h"
#include "quota.h"

struct bpf_map;

struct sweep_pass {
	__u32 now;
	__u32 kind; /* index in `swept` */
	__u64 entries, expired;
};

static __always_inline __u32 timeout_of(__u8 proto, __u8 family, const struct ct_entry *e)
{
	if (proto == PROTO_TCP) {
		__u8 fins = e->state & (CT_FIN_OPENER | CT_FIN_REPLY);

		/* One FIN closes one direction: the other may go on for as long as it likes. */
		if (e->state & (CT_RST | CT_REVOKED) || fins == (CT_FIN_OPENER | CT_FIN_REPLY))
			return cfg.timeout_fin;
		return e->state & CT_OPEN || e->flags & CT_MIDFLOW ? cfg.timeout_tcp : cfg.timeout_syn;
	}
	if (proto == PROTO_UDP)
		return cfg.timeout_udp;
	if (proto == (family == 4 ? PROTO_ICMP : PROTO_ICMPV6))
		return cfg.timeout_icmp;
	return cfg.timeout_other;
}

static __always_inline bool expired(struct sweep_pass *s, __u8 proto, __u8 family, const struct ct_entry *e)
{
	__u32 hz = cfg.hz ? cfg.hz : 250;
	__u64 age = (__u64)(s->now - e->seen) << 4;

	s->entries++;
	/* A packet on another CPU may just have written a later time than ours. */
	if ((__s32)(s->now - e->seen) < 0 || age < (__u64)timeout_of(proto, family, e) * hz)
		return false;
	s->expired++;
	return true;
}

static long sweep4(struct bpf_map *map, struct ct4_key *k, struct ct_entry *e, struct sweep_pass *s)
{
	if (expired(s, k->proto, 4, e)) {
		settle(e);
		bpf_map_delete_elem(map, k);
	}
	return 0;
}

static long sweep6(struct bpf_map *map, struct ct6_key *k, struct ct_entry *e, struct sweep_pass *s)
{
	if (expired(s, k->proto, 6, e)) {
		settle(e);
		bpf_map_delete_elem(map, k);
	}
	return 0;
}

static __always_inline void sweep_done(const struct sweep_pass *s)
{
	__u32 kind = s->kind;
	struct sweep *w = bpf_map_lookup_elem(&swept, &kind);

	if (!w)
		return;
	w->entries += s->entries;
	w->expired += s->expired;
	w->runs++;
}
