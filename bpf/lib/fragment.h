/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Fragments: the first is judged, the others follow it (D-12). */
#pragma once
#include "steps.h"

/* A later fragment goes where the first one went (D-12). */
__noinline int later_fragment(const struct pkt *p, __u32 hook)
{
	struct frag_info *f;

	if (!p)
		return -DROP_FRAG_NO_FIRST;
	if (p->t.family == 4) {
		struct frag4_key k = { .id = p->frag_id, .proto_dir = (__u32)p->t.proto << 8 | hook };

		*(__u32 *)k.src = p->t.src[0];
		*(__u32 *)k.dst = p->t.dst[0];
		f = bpf_map_lookup_elem(&frags4, &k);
	} else {
		/* The protocol is behind the fragment header of the first one only, if headers are chained: leave it out. */
		struct frag6_key k = { .id = p->frag_id, .proto_dir = hook };

		__builtin_memcpy(k.src, p->t.src, 16);
		__builtin_memcpy(k.dst, p->t.dst, 16);
		f = bpf_map_lookup_elem(&frags6, &k);
	}
	if (!f || clock_now() - f->seen > (cfg.hz * 30 >> 4))
		return -DROP_FRAG_NO_FIRST;
	if (!f->allow)
		return -DROP_FRAG_DENIED;
	return f->allow == 2 ? PASS_PENDING : f->allow == 3 ? PASS_WATCHED : PASS;
}

__noinline int first_fragment(const struct pkt *p, __u32 hook, int decision)
{
	struct frag_info f = { .seen = clock_now(), .allow = 1 };

	if (!p)
		return 0;
	if (decision < 0)
		f.allow = 0;
	else if (decision == PASS_PENDING)
		f.allow = 2;
	else if (decision == PASS_WATCHED)
		f.allow = 3;
	if (p->t.family == 4) {
		struct frag4_key k = { .id = p->frag_id, .proto_dir = (__u32)p->t.proto << 8 | hook };

		*(__u32 *)k.src = p->t.src[0];
		*(__u32 *)k.dst = p->t.dst[0];
		return bpf_map_update_elem(&frags4, &k, &f, BPF_ANY);
	} else {
		struct frag6_key k = { .id = p->frag_id, .proto_dir = hook };

		__builtin_memcpy(k.src, p->t.src, 16);
		__builtin_memcpy(k.dst, p->t.dst, 16);
		return bpf_map_update_elem(&frags6, &k, &f, BPF_ANY);
	}
}
