/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The state of one packet that the steps of the programs share. Nothing here crosses to Go. */
#pragma once
#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "config.h"
#include "maps.h"
#include "reasons.h"

#ifndef __noinline
#define __noinline __attribute__((noinline))
#endif

/* A condition that holds for nearly every packet, so that the code for it lies together. */
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* enum tcx_action_base, Linux 6.6; Debian 12's headers are older. */
#define TCX_NEXT -1
#define TCX_DROP 2

#define PACKET_HOST 0 /* linux/if_packet.h */

#define PROTO_HOPOPTS 0
#define PROTO_ICMP 1
#define PROTO_IPIP 4
#define PROTO_TCP 6
#define PROTO_UDP 17
#define PROTO_IPV6 41
#define PROTO_ROUTING 43
#define PROTO_FRAGMENT 44
#define PROTO_GRE 47
#define PROTO_AH 51
#define PROTO_ICMPV6 58
#define PROTO_DSTOPTS 60
#define PROTO_SCTP 132

#define TCP_FIN 1
#define TCP_SYN 2
#define TCP_RST 4
#define TCP_ACK 16

/* The result of a step for a packet: one of these, or -DROP_x. */
enum decision {
	PASS = 0,
	PASS_PENDING = 1,  /* pass, marked for judgement after translation */
	PASS_SHORTCUT = 2, /* both sides allow: straight to the peer */
	IS_MIDFLOW = 3,    /* a TCP packet that opens nothing, and no flow: see midflow() */
	IS_MESSAGE = 5,    /* an ICMP error about no flow that policy allows: see judge_error() */
	IS_ON_RECORD = 6,  /* an answer to which the record of its flow applies: see answered() */
	IS_OF_FORMER = 7,  /* the record is that of a pod which had the address before */
	PASS_WATCHED = 4,  /* pass; marked for judgement if the kernel's conntrack begins an entry with it */
};

enum pkt_flags {
	PKT_FIRST_FRAGMENT = 1,  /* fragmented, this one has the ports */
	PKT_LATER_FRAGMENT = 2,  /* ports not visible */
	PKT_ICMP_ERROR = 4,      /* quotes the packet it is about */
	PKT_LINK_LOCAL_ND = 8,   /* neighbour or multicast-listener discovery on the link */
	PKT_FURTHER_SOURCE = 16, /* the source is not the pod's own: see source.h */
	PKT_ENDS_IN_STACK = 32,  /* a flow with these ends has gone by the node's stack */
};

/* The two ends of a packet. IPv4 addresses are in word 0, the rest zero; all in network order. Ports as in ct4_key. */
struct tuple {
	__u32 src[4], dst[4];
	__u16 sport, dport;
	__u8 proto;
	__u8 family; /* 4 or 6 */
	__u8 pad[2];
};

struct pkt {
	struct tuple t;
	__u16 l4;     /* what policy matches: destination port, type << 8 | code, or protocol */
	__u16 l4_off; /* of the transport header, from the start of the packet as the hook sees it */
	__u8 flags;   /* enum pkt_flags */
	__u8 tcp;     /* TCP flags */
	__u16 l4_len; /* bytes from l4_off to the end of the IP packet; of what parse_slow has read */
	__u32 frag_id;
	__u32 peer_if; /* shortcut: host side of the other pod's veth */
	__u8 ttl;
	__u8 tcp_len;     /* of the TCP header, bytes */
	__u8 peer_denied; /* the drop is the peer's ingress policy's */
	__u8 chunk;       /* SCTP: type of the first chunk */
};

/* Chunks of SCTP that begin or end an association. */
enum sctp_chunk {
	SCTP_INIT = 1,
	SCTP_ABORT = 6,
	SCTP_SHUTDOWN_COMPLETE = 14,
};

/* Coarse clock: 16 jiffies. */
static __always_inline __u32 clock_now(void)
{
	return bpf_jiffies64() >> 4;
}

/* 1 if x is 0, else 0, without a branch: the verifier walks every combination of those. */
static __always_inline __u32 is_zero(__u32 x)
{
	__u64 y = x;

	asm volatile("" : "+r"(y)); /* else the compiler makes a branch of it */
	return (y - 1) >> 63;
}

/* Keeps the compiler from making one call of two look-ups in different maps. The verifier puts the look-up of a map in the
 * place of a call only if that always names the same map; otherwise the call is indirect, and takes twice as long. n: another
 * number for each of the two. */
#define KEEP_APART(n) asm volatile("" : : "i"(n))

static __always_inline bool has_ports(__u8 proto)
{
	return proto == PROTO_TCP || proto == PROTO_UDP || proto == PROTO_SCTP;
}

static __always_inline bool same_addr(const __u32 *x, const __u32 *y)
{
	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2] && x[3] == y[3];
}

static __always_inline bool is_icmp(const struct tuple *t)
{
	return t->proto == (t->family == 4 ? PROTO_ICMP : PROTO_ICMPV6);
}

/* TCP that asks for a connection. */
static __always_inline bool is_syn(const struct pkt *p)
{
	return (p->tcp & (TCP_SYN | TCP_ACK)) == TCP_SYN;
}

/* TCP that asks for no connection: part of one that is there, or was. */
static __always_inline bool is_tcp_midway(const struct pkt *p)
{
	return p->t.proto == PROTO_TCP && !is_syn(p);
}
