/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The options of an IPv4 header. */
#pragma once
#include <linux/if_ether.h>
#include "kernel.h"
#include "reasons.h"

#define IPV4_SHORTEST 20
#define IPV4_OPTION_BYTES 40

enum ipv4_option {
	IPV4_OPTION_END = 0,
	IPV4_OPTION_NOP = 1,
	IPV4_OPTION_LSRR = 131, /* loose source and record route */
	IPV4_OPTION_SSRR = 137, /* strict source and record route */
};

struct option_walk {
	struct __sk_buff *skb;
	__u32 at, end;
	int result; /* 0 or a drop reason */
};

/* One option. A callback, because the verifier would follow each way through a loop on its own. Returns 1 at the end. */
static int option_step(__u32 i, struct option_walk *w)
{
	__u8 type, len;

	if (w->at >= w->end)
		return 1;
	w->result = -DROP_TRUNCATED;
	if (bpf_skb_load_bytes(w->skb, w->at, &type, 1))
		return 1;
	w->result = 0;
	if (type == IPV4_OPTION_END)
		return 1;
	if (type == IPV4_OPTION_NOP) {
		w->at++;
		return 0;
	}
	w->result = -DROP_SOURCE_ROUTE;
	if (type == IPV4_OPTION_LSRR || type == IPV4_OPTION_SSRR)
		return 1;
	w->result = -DROP_BAD_HEADER;
	if (w->at + 2 > w->end || bpf_skb_load_bytes(w->skb, w->at + 1, &len, 1) || len < 2 || w->at + len > w->end)
		return 1;
	w->result = 0;
	w->at += len;
	return 0;
}

/* Refuses source routing, and options that cannot be read, from which Linux stops at the same byte. Every error that the
 * node's kernel sends about a packet with a source route follows that route backwards, also where source routing is off
 * (__ip_options_echo): the sender would choose whom the node writes to, and what. Of TC programs alone, which see every
 * packet of a pod. The frame is IPv4 whose header is all there. Returns 0 or a drop reason. */
__noinline int check_options(struct __sk_buff *skb)
{
	struct option_walk w = { .skb = skb, .at = sizeof(struct ethhdr) + IPV4_SHORTEST };
	__u8 first;

	if (bpf_skb_load_bytes(skb, sizeof(struct ethhdr), &first, 1))
		return -DROP_TRUNCATED;
	w.end = sizeof(struct ethhdr) + (first & 15) * 4;
	bpf_loop(IPV4_OPTION_BYTES, option_step, &w, 0);
	return w.result;
}
