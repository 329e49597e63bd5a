/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Every struct and enum that crosses the C/Go border, and nothing else; those of flows and fragments are in types_flows.h.
 * Go gets them from BTF (bpf2go); no Go copy is kept by hand. Padding is explicit, nothing is packed. Addresses are bytes in network order, so that bpftool prints
 * them readably; ports, ids and all other numbers are in host order unless their name ends in _be. */
#pragma once
#include <linux/bpf.h>
#include <linux/types.h>
#include "types_flows.h"

/* ---- addresses ---- */

struct ip4 {
	__u8 addr[4];
} __attribute__((aligned(4)));

struct ip6 {
	__u8 addr[16];
} __attribute__((aligned(8)));

struct net4 {
	__u32 prefixlen;
	__u8 addr[4];
};

struct net6 {
	__u32 prefixlen;
	__u8 addr[16];
};

enum addr_flags {
	ADDR_ENDPOINT = 1,      /* a local endpoint's own address; ifindex says whose */
	ADDR_HOST = 2,          /* one of this node's own addresses */
	ADDR_MAY_TRANSLATE = 4, /* kube-proxy may translate it: judge egress after it has */
	ADDR_OWNED = 8, /* of an endpoint, a node or a Service, anywhere: no source for others, see struct source_key */
};

/* The entry of a prefix, and what programs know of an address. One write changes all of its memberships at once (D-8). */
struct addr_info {
	__u32 class;   /* equivalence class; 0: IPv4 in no set, 1: IPv6 in no set */
	__u32 flags;   /* enum addr_flags */
	__u32 ifindex; /* of the local endpoint, or 0 */
};

/* The entry of a single address. By the lock it is changed where it is: programs may miss an entry that is replaced, and its memory may
 * have another address at once. Programs do not lock it: they read the last 8 bytes, which the kernel copies for themselves, as one
 * word. ifindex may be older or newer than that word, so who uses it asks the endpoint whether the address is its own, or needs no more
 * than one of both states. */
struct host_info {
	__u32 ifindex; /* these as in struct addr_info */
	struct bpf_spin_lock lock;
	__u32 class;
	__u8 flags;
	__u8 check[3]; /* address_check of the address that the entry is of */
};

/* A prefix of addresses that are not an endpoint's own and that it may send from all the same. */
struct source_key {
	__u32 prefixlen; /* 64 and the length of the prefix */
	__u32 ifindex;
	__u32 family;  /* 4 or 6 */
	__u8 addr[16]; /* IPv4 in the first 4 bytes */
};

/* Which sets a class is in, 512 sets a chunk; an absent chunk is all zero. Bit n of bits[w] of chunk c is set number
 * c*512 + w*64 + n. */
struct class_chunk {
	__u32 class;
	__u32 chunk;
};

struct set_bits {
	__u64 bits[8];
};

/* Text, zero-terminated: the agent's names for numbers, so that dumps can be read and a restarted agent keeps the
 * same numbers. */
struct name {
	__u8 text[256];
};

/* ---- compiled policy ---- */

enum slot_flags {
	SLOT_INTERPRET = 1,    /* walk the rules; there are no tables */
	SLOT_SOURCE_PORTS = 2, /* columns are pairs of destination and source port classes */
	SLOT_WIDE = 4,         /* a row has a base and exceptions */
};

/* One compiled policy of one direction. row, column -> cell = blocks of 32 cells:
 * block = rowblk[row * blocks + column / 32]; outcome = cells[block][column % 32].
 *
 * SLOT_WIDE: behind the blocks of rows, rowblk has the heads of rows, 8 in a value: {base, exceptions before this row's
 * (low and high half), number of its exceptions}. Behind the blocks of cells, cells has the exceptions, 16 in a value:
 * {column, outcome}, by ascending column for each row. All other columns are as in the row of blocks `base`. */
struct slot {
	__u32 rules;      /* entries in the ordered match table */
	__u32 rows;       /* rows of the decision table; row 0 denies */
	__u32 columns;    /* L4 columns, the factor sports included */
	__u32 blocks;     /* blocks of 32 columns in a row */
	__u32 sports;     /* source port classes, at least 1 */
	__u32 classifier; /* who uses the slot, for people */
	__u32 generation; /* when it was published; no endpoint is bound with it */
	__u32 flags;      /* enum slot_flags */
	__u32 heads;      /* SLOT_WIDE: the value of rowblk at which the heads of rows begin */
	__u32 exceptions; /* SLOT_WIDE: the value of cells at which the exceptions begin */
};

enum rule_action {
	RULE_ALLOW = 1,
	RULE_DENY = 2,
	RULE_PASS = 3, /* go to rule `jump`, remember it in the trace */
	RULE_LOG = 4,  /* remember it, go on */
	RULE_SKIP = 5, /* go to rule `jump`; part of the API rule that follows (a negated clause) */
};

enum rule_flags {
	RULE_V4 = 1,        /* matches IPv4 packets */
	RULE_V6 = 2,        /* matches IPv6 packets */
	RULE_PROTO = 4,     /* protocol must equal proto */
	RULE_NOT_PROTO = 8, /* protocol must not equal proto */
	RULE_END = 16,      /* end of tier, or the final "no profile matched" */
};

/* Inclusive. For TCP, UDP, SCTP a port; for ICMP and ICMPv6 type << 8 | code; for any other protocol its number. */
struct range {
	__u16 lo;
	__u16 hi;
};

/* One entry of the ordered match table. All conditions are ANDed; ranges of one list are ORed. */
struct rule {
	__u32 id;    /* index in rule_stats; 0: not counted */
	__u8 action; /* enum rule_action */
	__u8 flags;  /* enum rule_flags */
	__u8 proto;
	__u8 ndports; /* ranges in dport; 0: any */
	__u8 nsports; /* ranges in sport; 0: any */
	__u8 pad;
	__u16 jump;      /* RULE_PASS and RULE_SKIP: next rule to try, always further down */
	__u32 in[3];     /* set numbers the remote address must be in; 0: none */
	__u32 not_in[3]; /* set numbers it must not be in; 0: none */
	struct range dport[5];
	struct range sport[2];
};

/* L4 page: page[protocol index].col[key >> 8] names a page, whose col[key & 255] is the column. Pages 0 to 5 are the
 * first level for destination ports, pages 6 to 11 for source ports (only with SLOT_SOURCE_PORTS). */
enum l4_index {
	L4_TCP = 0,
	L4_UDP = 1,
	L4_SCTP = 2,
	L4_ICMP = 3,
	L4_ICMPV6 = 4,
	L4_OTHER = 5, /* key is the protocol number */
	L4_INDEXES = 6,
};

struct l4_page {
	__u16 col[256];
};

struct cell_block {
	__u16 cell[32];
};

/* The meaning of a cell. */
struct outcome {
	__u32 id;     /* of the deciding rule in rule_stats; 0: not counted */
	__u16 rule;   /* index of the deciding entry in the ordered match table; 0xffff: none, the class is unknown */
	__u8 action;  /* RULE_ALLOW or RULE_DENY */
	__u8 nlogs;   /* Log rules on the way; only the first 4 are kept */
	__u8 npasses; /* passes on the way; only the first 6 are kept */
	__u8 pad[3];
	__u16 log[4];
	__u16 pass[6];
};

/* ---- endpoints ---- */

enum place_numbers {
	ENDPOINTS = 65536,        /* by ifindex & 0xffff */
	FURTHER_ENDPOINTS = 4096, /* after those: of endpoints that find their place taken */
};

enum endpoint_flags {
	EP_READY = 1,          /* policy is programmed; without it nothing passes (D-18) */
	EP_MORE_ADDRS = 2,     /* has addresses besides addr4 and addr6: look them up */
	EP_STAGED_INGRESS = 4, /* its ingress has staged policies: see struct staged */
	EP_STAGED_EGRESS = 8,
	EP_SOURCES = 16,       /* may send from other addresses than its own: see struct source_key */
	EP_BESIDE = 32,        /* another dataplane judges, too: see beside() */
	EP_BESIDE_BEFORE = 64, /* another one judged until lately: see beside() */
};

/* One local endpoint by ifindex. ingress and egress are slot << 32 | generation: the one aligned word whose store
 * publishes a policy. */
struct endpoint {
	__u32 ifindex;
	__u32 flags; /* enum endpoint_flags */
	__u64 ingress;
	__u64 egress;
	__u32 id;           /* agent's number of the endpoint: no generation that it was published under is lower */
	__u32 peer_ifindex; /* the pod's side of the veth, in its namespace; 0: unknown, no shortcut */
	__u8 mac[6];        /* the pod's MAC; zero: unknown, no shortcut */
	__u16 mtu;
	__u8 addr4[4];  /* zero: none */
	__u8 addr6[16]; /* zero: none */
	__u32 share;    /* number of its share of the flow tables */
};

/* The policy of an endpoint as if its staged policies were enforced, as slot << 32 | generation; 0: there are none. It is
 * evaluated for new verdicts and decides nothing. */
struct staged {
	__u64 ingress;
	__u64 egress;
	struct bpf_spin_lock lock; /* see struct host_info */
	__u32 spare;
};

/* ---- results and events ---- */

/* A question of the agent to a compiled policy, and its answer: see ask.h. */
struct asked {
	__u64 word;    /* of the endpoint: slot << 32 | generation */
	__u8 addr[16]; /* the remote address; IPv4 in the first 4 bytes */
	__u16 l4;      /* destination port, type << 8 | code, or protocol */
	__u16 sport;
	__u8 proto;
	__u8 family;
	__u8 by_rules; /* 1: by the ordered match table, also if there is a decision table */
	/* answer */
	__u8 allow;
	__u32 class; /* of the address */
	__u32 rule_id;
	__u16 rule; /* as in struct outcome; 0xffff: none */
	__u8 missing;
	__u8 nlogs;
	__u8 npasses;
	__u8 pad[3];
	__u16 log[4];
	__u16 pass[6];
	__u32 pad2;
};

/* The results of a sweep; in the map `swept`. */
struct sweep {
	__u64 entries; /* looked at */
	__u64 expired; /* removed */
	__u64 runs;    /* walks over a whole table, of one family each */
	__u64 pad;
};

struct counter {
	__u64 packets;
	__u64 bytes;
};

struct drop_key {
	__u32 ifindex;
	__u16 reason; /* enum drop_reason */
	__u16 to_pod; /* 1: towards the pod */
};

enum event_flags {
	EVENT_INGRESS = 1,  /* the ingress policy judged; else egress */
	EVENT_REVOKED = 2,  /* a live flow lost its permission */
	EVENT_REJUDGED = 4, /* a live flow was judged again and keeps its permission */
	EVENT_IPV6 = 8,
	EVENT_TRANSLATED = 16, /* judged after Service translation */
	EVENT_STAGED = 32,     /* the staged policies would have decided otherwise, by staged_id */
};

/* One record per new verdict. */
struct event {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u32 ifindex; /* of the endpoint judged */
	__u32 slot;
	__u32 generation;
	__u32 rule_id;
	__u16 rule;
	__u16 reason; /* enum drop_reason, 0: allowed */
	__u8 flags;   /* enum event_flags */
	__u8 proto;
	__u16 sport;
	__u16 dport;      /* or ICMP type << 8 | code */
	__u16 suppressed; /* events left out before this one, by the rate limit */
	__u8 src[16];     /* IPv4 in the first 4 bytes */
	__u8 dst[16];
	__u8 nlogs; /* as in struct outcome: what the flow met on its way to the verdict */
	__u8 npasses;
	__u16 log[4];
	__u16 pass[6];
	__u16 pad;
	__u32 staged_id; /* EVENT_STAGED: index in rule_stats of the rule that would have decided */
};
