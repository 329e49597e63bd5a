/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Walks over the flow maps. The agent reads a map part by part, which leaves the keys of a part in walk4 or walk6, and runs a program
 * that looks at each of these flows. Such a run is interrupted by packets like any other work of a process.
 * Iterators would do without keys, but they are tracing programs, which hardened kernels refuse. */
#pragma once
#include "conntrack.h"

/* A program that looks at the flows of one family. look_ is called with protocol, family and entry, and returns whether the flow is
 * to be removed; end_ is called with the last part of a walk. A flow that has gone since its key was read is passed over. */
#define WALK_PROGRAM(name_, family_, look_, end_)                                                 \
	static long name_##_flow(__u32 i, void *unused)                                           \
	{                                                                                         \
		const struct ct##family_##_key *at = bpf_map_lookup_elem(&walk##family_, &i);     \
		struct ct##family_##_key k;                                                       \
		struct ct_entry *e;                                                               \
                                                                                                  \
		if (!at)                                                                          \
			return 1;                                                                 \
		k = *at;                                                                          \
		e = bpf_map_lookup_elem(&ct##family_, &k);                                        \
		if (e && look_(k.proto, family_, e))                                              \
			bpf_map_delete_elem(&ct##family_, &k);                                    \
		return 0;                                                                         \
	}                                                                                         \
                                                                                                  \
	SEC("syscall")                                                                            \
	int name_(struct walk_part *part)                                                         \
	{                                                                                         \
		bpf_loop(part->keys < WALK_KEYS ? part->keys : WALK_KEYS, name_##_flow, NULL, 0); \
		if (part->last)                                                                   \
			end_();                                                                   \
		return 0;                                                                         \
	}
