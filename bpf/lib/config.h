/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Load-time configuration, and nothing else. Go sets the one struct before loading; it is frozen afterwards, so the
 * verifier removes the branches that are not taken. Times are in seconds. */
#pragma once
#include <linux/types.h>

#define TUNNEL_PORTS 8

/* A field is named as the setting that gives it its value (docs/configuration.md), if one does. The first 64 bytes, a cache
 * line, are what packets of known flows need. */
struct config {
	__u32 mark_seen;                  /* mark bit: a program of ours has let the packet through */
	__u32 mark_judge;                 /* mark bit: egress is still to be judged, after translation */
	__u32 mark_own;                   /* mark bit: made by us (a RST); pass */
	__u32 allow_encap;                /* 0: drop tunnels that pods make: IP-in-IP, GRE, and UDP to tunnel_ports */
	__u16 tunnel_ports[TUNNEL_PORTS]; /* the first 0 ends the list */
	__u8 interface_prefix[8];         /* of workload interfaces: "cali" */
	__u32 interface_prefix_len;
	__u32 no_shortcut;     /* 1: send traffic between pods of this node through the host's stack */
	__u32 host_drop;       /* 1: drop what pods send to this node after their egress policy allowed it */
	__u32 strict_mid_flow; /* 1: drop TCP packets of unknown flows that are no SYN */
	__u32 keep_existing;   /* 1: live flows keep their permission when policy changes */
	__u32 event_rate;      /* events per second and CPU; 0: none */
	__u32 hz;              /* of the kernel: jiffies per second */
	__u32 flow_quota;      /* most open flows of one endpoint; 0: as many as its share allows */
	__u32 open_share;      /* open flows that every endpoint may have */
	__u32 open_common;     /* further ones, of all together; an endpoint has at most as many of them as are left */
	__u32 half_share;      /* half-open flows of an endpoint that only its own later ones evict; a power of two */
	__u32 half_common;     /* further ones, of all together, the oldest evicted first; a power of two */
	__u32 timeout_tcp_syn;
	__u32 timeout_tcp_established;
	__u32 timeout_tcp_fin;
	__u32 timeout_udp;
	__u32 timeout_icmp;
	__u32 timeout_other;
	__u32 end_shortcut; /* 1: flows that begin go through the host's stack, those that take the shortcut go on */
};

volatile const struct config cfg;
