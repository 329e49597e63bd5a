/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Every map. Names are at most 15 characters; every key and value has BTF, so bpftool prints field names. The agent is
 * the writer unless said otherwise. Sizes are defaults; the agent may change max_entries of hashes when loading. */
#pragma once
#include "types.h"

#define BPF_F_INNER_MAP_ 0x1000

#define SLOTS 4096
#define ENDPOINT_PLACES (ENDPOINTS + FURTHER_ENDPOINTS)
#define RULE_STATS 65536
#define HALF_KEYS (SHARES * HALF_SHARE + HALF_COMMON)
#define ALL_FRAG_SETS (SHARES * 2 * FRAG_SETS)
#define FRAG_ACCOUNTS (2 * (SHARES + 1))

/* Address -> its class and endpoint: exact matches first, then the longest prefix. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 20);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct ip4);
	__type(value, struct host_info);
} ip4_host SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 20);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct ip6);
	__type(value, struct host_info);
} ip6_host SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1 << 20);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct net4);
	__type(value, struct addr_info);
} ip4_net SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1 << 20);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct net6);
	__type(value, struct addr_info);
} ip6_net SEC(".maps");

/* Class -> sets, for people and for the interpreter. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 18);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct class_chunk);
	__type(value, struct set_bits);
} class_sets SEC(".maps");

/* Set number -> the agent's id of the set; rule_stats index -> the API rule. Not read by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 18);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct name);
} set_names SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, RULE_STATS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct name);
} rule_names SEC(".maps");

/* Interface of a local endpoint -> the endpoint, "namespace/name". Not read by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct name);
} endpoint_names SEC(".maps");

/* Slot -> shape of the compiled policy in it. Slot 0 is never a policy: a reference to it denies, and its generation is
 * the highest that may have been handed out. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

/* The parts of a compiled policy, one inner array per slot. Immutable while an endpoint refers to the slot, except
 * that rows of classes no address has yet may be added. */
#define TABLE_PART(name_, type_)                          \
	struct name_##_inner {                            \
		__uint(type, BPF_MAP_TYPE_ARRAY);         \
		__uint(max_entries, 1);                   \
		__uint(map_flags, BPF_F_INNER_MAP_);      \
		__type(key, __u32);                       \
		__type(value, type_);                     \
	};                                                \
	struct {                                          \
		__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS); \
		__uint(max_entries, SLOTS);               \
		__type(key, __u32);                       \
		__array(values, struct name_##_inner);    \
	} name_ SEC(".maps")

TABLE_PART(rules, struct rule);        /* ordered match table */
TABLE_PART(l4, struct l4_page);        /* protocol and port -> column */
TABLE_PART(rows, struct cell_block);   /* class -> row, 32 classes a value */
TABLE_PART(rowblk, struct cell_block); /* row and column -> block, 32 a value */
TABLE_PART(cells, struct cell_block);  /* block -> 32 outcomes */
TABLE_PART(outcomes, struct outcome);

/* Endpoint by ifindex & 0xffff. One that finds this place taken has one of the last FURTHER_ENDPOINTS, see endpoint_places. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ENDPOINT_PLACES);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct endpoint);
} endpoints SEC(".maps");

/* ifindex -> place in endpoints, of endpoints that have a further one. An entry is never replaced. Its memory may be another's at once when it
 * is removed, so programs look whose endpoint has the place. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FURTHER_ENDPOINTS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u32);
} endpoint_places SEC(".maps");

/* The verdicts that the staged policies of endpoints would give, by ifindex; only of those with EP_STAGED_INGRESS or EP_STAGED_EGRESS. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct staged);
} staged SEC(".maps");

/* Further sources; only of endpoints with EP_SOURCES. The value is 1. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct source_key);
	__type(value, __u32);
} sources SEC(".maps");

/* Flows, half-open and open; written by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 20);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct ct4_key);
	__type(value, struct ct_entry);
} ct4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 20);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct ct6_key);
	__type(value, struct ct_entry);
} ct6 SEC(".maps");

/* What each endpoint takes of them, and what all do in common; written by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SHARES + 1);
	__type(key, __u32);
	__type(value, struct share);
} shares SEC(".maps");

/* Keys of half-open flows in the order of their beginning: a ring for each share, and behind those a common one for what
 * falls out of them; written by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HALF_KEYS);
	__type(key, __u32);
	__type(value, struct half_key);
} half_keys SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct grace);
} midflow_grace SEC(".maps");

/* ARP and neighbour discovery from pods, by the same places as endpoints; written by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ENDPOINT_PLACES);
	__type(key, __u32);
	__type(value, struct neighbour);
} neighbours SEC(".maps");

/* First fragments: of each share FRAG_SETS sets for datagrams to its pods, and as many for those from them; written by the
 * programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ALL_FRAG_SETS);
	__type(key, __u32);
	__type(value, struct frag_set);
} frags SEC(".maps");

/* What fragments are charged to each share, and to what all have in common, for IPv4 and behind that for IPv6; written by
 * the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FRAG_ACCOUNTS);
	__type(key, __u32);
	__type(value, struct frag_account);
} frag_memory SEC(".maps");

/* First packets of flows by deciding rule; written by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, RULE_STATS);
	__type(key, __u32);
	__type(value, struct counter);
} rule_stats SEC(".maps");

/* Dropped packets; written by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct drop_key);
	__type(value, struct counter);
} drops SEC(".maps");

/* New verdicts; written by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

/* Rate limit of events, one second at a time; written by the programs. */
struct event_budget {
	__u32 second;
	__u32 used;
	__u32 suppressed;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct event_budget);
} event_budgets SEC(".maps");

/* What each share has written of that in a second; written by the programs. */
struct event_share {
	__u32 second;
	__u32 used;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SHARES);
	__type(key, __u32);
	__type(value, struct event_share);
} event_shares SEC(".maps");

/* What sweeps found, by kind of flow table: 0 open, 1 half; written by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct sweep);
} swept SEC(".maps");

/* Keys of flows that a run of a sweep or restamp program is to look at; written by the agent, which has them in its memory. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, WALK_KEYS);
	__type(key, __u32);
	__type(value, struct ct4_key);
} walk4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, WALK_KEYS);
	__type(key, __u32);
	__type(value, struct ct6_key);
} walk6 SEC(".maps");
