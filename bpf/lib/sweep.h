/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Expiry of flows: iterator programs that the agent runs over a flow map by reading a file. Packets are handled
 * between any two entries. A read ends after SWEEP_SLICE entries, and the next one continues from there. */
#pragma once
#include <bpf/bpf_core_read.h>
#include "conntrack.h"

/* Entries looked at by one read: about 0.1 ms. */
#define SWEEP_SLICE 1024

struct bpf_map;

struct bpf_iter__bpf_map_elem {
	struct bpf_map *map;
	void *key; /* NULL: the walk is over */
	void *value;
} __attribute__((preserve_access_index));

enum { SWEEP_GO_ON = 0, SWEEP_PAUSE = 1 }; /* PAUSE: the same entry comes again with the next read */

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

/* Counts one entry, or the end of a walk. */
static __always_inline int sweep_step(const struct ct_entry *e)
{
	__u32 kind = e && !e->kept, first = 0;
	struct sweep *walk = bpf_map_lookup_elem(&swept, &first), *w = bpf_map_lookup_elem(&swept, &kind);

	if (!walk || !w)
		return SWEEP_GO_ON;
	if (!e) {
		walk->runs++;
		walk->slice = 0;
		return SWEEP_GO_ON;
	}
	if (walk->slice >= SWEEP_SLICE) {
		walk->slice = 0;
		return SWEEP_PAUSE;
	}
	walk->slice++;
	w->entries++;
	return SWEEP_GO_ON;
}

static __always_inline void sweep_out(struct ct_entry *e)
{
	__u32 kind = !e->kept;
	struct sweep *w = bpf_map_lookup_elem(&swept, &kind);

	if (w)
		w->expired++;
	let_go(e);
}

/* The entry is looked up again: what an iterator hands out is not a map value to the verifier. */
#define SWEEP_PROGRAM(name_, map_, key_type_, family_)                   \
	SEC("iter/bpf_map_elem")                                         \
	int name_(struct bpf_iter__bpf_map_elem *ctx)                    \
	{                                                                \
		const key_type_ *key = ctx->key;                         \
		struct ct_entry *e = ctx->value;                         \
		key_type_ k;                                             \
		int r;                                                   \
                                                                         \
		r = sweep_step(key ? e : NULL);                          \
		if (r || !key || !e || !expired(key->proto, family_, e)) \
			return r;                                        \
		k = *key;                                                \
		e = bpf_map_lookup_elem(&map_, &k);                      \
		if (!e || !expired(k.proto, family_, e))                 \
			return SWEEP_GO_ON;                              \
		sweep_out(e);                                            \
		bpf_map_delete_elem(&map_, &k);                          \
		return SWEEP_GO_ON;                                      \
	}

SWEEP_PROGRAM(sweep4, ct4, struct ct4_key, 4)
SWEEP_PROGRAM(sweep6, ct6, struct ct6_key, 6)
