//go:build ignore
// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "lib/reasons.h"
#include "lib/config.h"
#include "lib/maps.h"

char _license[] SEC("license") = "Dual BSD/GPL";

#include "lib/export.h"

SEC("tcx/ingress") int from_pod(struct __sk_buff *skb) { return cfg.strict ? 0 : (int)(long)bpf_map_lookup_elem(&drops, &(struct drop_key){}) ? 0 : -1; }
SEC("tcx/egress") int to_pod(struct __sk_buff *skb) { return cfg.strict ? 0 : -1; }
