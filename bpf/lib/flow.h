/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The flow that a packet belongs to, as policy sees it. */
#pragma once
#include "conntrack.h"
#include "parse.h"

/* The flow as policy sees it: opener first, destination after translation. */
struct flow {
	struct tuple t; /* src: opener; dst: responder, or the backend */
	__u16 l4;
	__u16 len; /* of the packet that asks, for the counters */
	/* answer */
	__u8 missing;    /* denied because a part of the policy is not there */
	__u8 staged;     /* enum staged_answer */
	__u16 staged_id; /* index in rule_stats of the staged rule that decides */
};

/* A flow with the ends of a packet, opened by its source or, if not src_opens, by its destination. l4 is what policy judges
 * of a packet of its opener; of an answer it is the port answered from, or the echo request answered. */
static __always_inline void flow_of_ends(struct flow *f, const struct tuple *t, __u16 l4, bool src_opens, __u32 len)
{
	f->t = *t;
	f->l4 = l4;
	f->len = len > 65535 ? 65535 : len;
	f->missing = f->staged = 0;
	if (!src_opens) {
		__builtin_memcpy(f->t.src, t->dst, 16);
		__builtin_memcpy(f->t.dst, t->src, 16);
		f->t.sport = t->dport;
		f->t.dport = t->sport;
		if (has_ports(t->proto))
			f->l4 = t->sport;
		else if (is_icmp(t) && icmp_is_echo_reply(t->family, l4 >> 8))
			f->l4 = t->family == 4 ? 8 << 8 : 128 << 8;
	}
}

/* How check_side is asked: the direction of the packet, and the side. */
enum side_flags {
	SIDE_ORIG = 1,    /* the packet is its opener's */
	SIDE_EGRESS = 2,  /* ep is the opener's */
	SIDE_COPY = 4,    /* e is a copy, not the entry itself */
	SIDE_STAMPED = 8, /* the side has allowed the flow before; check_side sets it, to save a variable */
	SIDE_QUIET = 16,  /* no packet of the flow: a denial is not reported */
};

/* The flow that a packet with the ends t belongs to. Not inline, to keep its variables off the stack of check_side. */
__noinline int flow_of(struct flow *f, const struct tuple *t, const struct ct_entry *e, __u32 how, __u32 len)
{
	if (!f || !t || !e)
		return -1;
	f->t = *t;
	if (!(how & SIDE_ORIG)) {
		__builtin_memcpy(f->t.src, t->dst, 16);
		__builtin_memcpy(f->t.dst, t->src, 16);
		f->t.sport = t->dport;
		f->t.dport = t->sport;
	}
	if (e->flags & CT_TRANSLATED)
		__builtin_memcpy(f->t.dst, e->backend, 16);
	f->l4 = e->l4;
	f->len = len > 65535 ? 65535 : len;
	return 0;
}
