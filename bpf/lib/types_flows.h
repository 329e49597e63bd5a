/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The structs and enums of flows, of their limits and of fragments that cross the C/Go border. The rules of types.h apply. */
#pragma once
#include <linux/bpf.h>
#include <linux/types.h>

/* Normalised: (a, pa) is the lower of the two ends, so both directions and both pods of a flow share one entry.
 * Ports: TCP, UDP, SCTP; ICMP echo: the identifier at the requester's end, one more at the other; other ICMP: type << 8
 * | code twice; else 0. */
struct ct4_key {
	__u8 a[4], b[4];
	__u16 pa, pb;
	__u8 proto;
	__u8 pad[3];
} __attribute__((aligned(4)));

struct ct6_key {
	__u8 a[16], b[16];
	__u16 pa, pb;
	__u8 proto;
	__u8 pad[3];
} __attribute__((aligned(8)));

enum ct_state {
	CT_REPLIED = 1, /* the responder has sent */
	CT_OPEN = 2,    /* TCP: handshake complete; others: both sides have sent */
	CT_FIN_OPENER = 4,
	CT_FIN_REPLY = 8,
	CT_RST = 16,
	CT_REVOKED = 32, /* policy changed and denies it now */
	CT_ONE_WAY = 64, /* no TCP, was revoked once: nothing from its responder opens a flow the other way round */
};

enum ct_flags {
	CT_OPENER_B = 1,   /* b opened the flow */
	CT_FROM_HOST = 2,  /* opened by this node itself: ingress is not policed */
	CT_SELF = 4,       /* a pod talking to itself (D-16) */
	CT_TRANSLATED = 8, /* judged after translation: backend and l4 are the real destination */
	CT_SHORTCUT = 16,  /* both sides local, opened past the host stack */
	CT_MIDFLOW = 32,   /* picked up in mid-flow; the opener is a guess */
	/* CT_TRANSLATED, CT_SELF: the kernel's conntrack has an answered entry, which leads where policy was asked about. A flag and
	 * no state, since several CPUs change the state at once; this bit changes by atomic operations: see confirm. */
	CT_CONFIRMED = 64,
};

/* Stamps that are no generation. Generations are greater. */
enum other_stamps {
	STAMP_OF_ANOTHER = 1, /* not the present endpoint of that interface has allowed the flow: see restamp.h */
};

/* The stamps are the generations under which each side was judged and allowed; 0: that side is not ours. */
struct ct_entry {
	__u32 seen;         /* coarse clock of the last packet: jiffies >> 4 */
	__u16 l4;           /* what policy judged: destination port, or ICMP type << 8 | code */
	__u8 state;         /* enum ct_state */
	__u8 flags;         /* enum ct_flags */
	__u32 egress;       /* stamp of the opener's egress policy */
	__u32 ingress;      /* stamp of the responder's ingress policy */
	__u32 opener_if;    /* the opener's interface, if its policy has judged */
	__u32 responder_if; /* the responder's, likewise; CT_SHORTCUT: both */
	__u8 backend[16];   /* CT_TRANSLATED: the address policy judged (IPv4 in the first 4 bytes) */
	/* Where it is, and whose it was when it got there; stays when the flow is opened again: see ct_rewrite. */
	__u32 place; /* of its key in half_keys, plus one; 0: in none */
	__u32 kept;  /* the share that is charged with it as an open flow, plus one; 0: half-open, may be evicted */
};

/* Of the stamps of a revoked flow. No generation is so large. */
enum ct_stamp {
	RESET_AT = 0x80000000, /* the other bits are the coarse clock of the last reset for a packet of that end */
};

#define CT_GONE 0xffffffff /* in ct_entry.kept: about to be deleted */

/* The context of a program that looks at flows whose keys are in walk4 or walk6. */
struct walk_part {
	__u32 keys; /* so many of them, from the first on; at most WALK_KEYS */
	__u32 last; /* not 0: the walk over the table ends with them */
};

enum flow_limits {
	WALK_KEYS = 1024, /* most keys in one run: about 0.1 ms */
	SHARES = 256,
	HALF_SHARE = 1024,    /* most half-open flows of a share */
	HALF_COMMON = 131072, /* most half-open flows beyond their shares */
	FRAG_SETS = 32, /* datagrams on record of a share, those from its pods and those to them: so many sets each */
	FRAG_WAYS = 8,  /* of so many */
	FRAG_PERIODS = 8,
	FRAG_OWN_BYTES = 8192,       /* of the kernel's memory for reassembly, which each share has for each family */
	FRAG_COMMON_BYTES = 1572864, /* and what all have in common: with that of 256 shares 3.5 MiB of 4 */
};

/* What one endpoint takes of the flow tables. It is charged with the flows that it opened, and with those opened to it
 * from elsewhere. The last one, number SHARES, is what all have in common: there, `open` are the open flows beyond
 * their endpoints' own shares. */
struct share {
	__u32 open;    /* open flows */
	__u32 begun;   /* half-open flows so far: the next one's place, modulo the share */
	__u64 refused; /* flows that stayed half-open because there was no place for one more open one */
	__u64 evicted; /* half-open flows that later ones pushed out; only in number SHARES */
	__u64 pad[5];  /* a cache line, so that CPUs do not share one for different endpoints */
};

/* The key of a half-open flow: a ct4_key or ct6_key without its last byte, which is not used. */
struct half_key {
	__u8 key[39];
	__u8 family; /* 4, 6; 0: empty */
} __attribute__((aligned(8)));

/* The end of the period in which a TCP packet in mid-flow counts as an answer if policy would allow the packet
 * that it answers (D-20). */
struct grace {
	__u64 until; /* CLOCK_MONOTONIC, ns */
};

/* ARP and neighbour discovery of an interface: the rate, and the link-local address that it claims. */
struct neighbour {
	__u64 next;       /* when the next message would be due if they came evenly; CLOCK_MONOTONIC, ns */
	__u64 link_local; /* interface identifier of a link-local address that is not its MAC's; 0: none */
};

/* Where a program of ours meets a packet. Named from the pod's side, as everywhere: packets from it, packets to it. */
enum hook {
	FROM_POD = 0,
	TO_POD = 1,
	AFTER_TRANSLATION = 2, /* netfilter: from the pod, with the destination that kube-proxy has put in place */
};

/* The verdict for later fragments of a datagram. */
enum fragment_verdict {
	FRAGMENT_DENIED = 0,
	FRAGMENT_PASS = 1,
	FRAGMENT_PENDING = 2, /* marked for judgement after translation */
	FRAGMENT_WATCHED = 3, /* marked for judgement if the kernel's conntrack begins an entry with it */
	FRAGMENT_UNKNOWN = 4, /* no first one is on record: see beside() */
};

/* A datagram from a pod: its fragments in the kernel's memory for reassembly. */
enum fragment_state {
	FRAGMENT_NONE = 0,         /* nothing of it is there */
	FRAGMENT_IN_ORDER = 1,     /* all of it, from the first one on */
	FRAGMENT_OUT_OF_ORDER = 2, /* some of it, perhaps */
	FRAGMENT_COMPLETE = 3,     /* nothing any more */
};

/* A first fragment's verdict, for the later fragments (D-12). For datagrams from pods also the charged bytes. */
struct fragment {
	__u8 src[16], dst[16]; /* IPv4 in the first 4 bytes */
	__u32 id;
	__u16 way;    /* 4 or 6, << 8 | enum hook */
	__u16 proto;  /* IPv4 only */
	__u32 seen;   /* coarse clock of the first fragment, or of the last of a complete datagram */
	__u8 verdict; /* enum fragment_verdict */
	__u8 state;   /* enum fragment_state */
	__u16 next;   /* where the next one is to begin, in units of 8 bytes */
	__u32 number; /* of the latest one, among those of its share */
	__u32 period; /* of the latest one */
	__u32 own;    /* bytes charged to the share in that period */
	__u32 common; /* bytes charged to what all have in common in that period */
};

/* Those whose ends and id fall together, in turn. */
struct frag_set {
	struct fragment of[8]; /* FRAG_WAYS */
	__u32 turn;
	struct bpf_spin_lock lock;
};

/* The charge of one period. */
struct frag_period {
	__u32 period; /* number of the period */
	__u32 own;    /* bytes */
	__u32 common; /* bytes */
};

/* What fragments of a share are charged to it, of one family. */
struct frag_account {
	struct bpf_spin_lock lock;
	__u32 fragments;          /* so far */
	struct frag_period of[8]; /* FRAG_PERIODS, by their number */
};
