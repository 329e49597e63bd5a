/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Why a packet was dropped. Numbers are frozen: append only, never renumber. bpf/reasons.go gives each its text and
 * metric label; contract_test.go joins the two and docs/datapath.md. */
#pragma once

enum drop_reason {
	DROP_NONE = 0,
	DROP_POLICY = 1,      /* a rule or the end of a tier denies */
	DROP_NO_ENDPOINT = 2, /* interface not known yet, or not ready (D-18) */
	DROP_SPOOFED = 3,     /* source address is not the endpoint's */
	DROP_NOT_IP = 4,
	DROP_TRUNCATED = 5,       /* shorter than its headers say */
	DROP_BAD_HEADER = 6,      /* impossible header fields */
	DROP_EXT_HEADERS = 7,     /* more IPv6 extension headers than are walked */
	DROP_FRAG_NO_FIRST = 8,   /* later fragment without a recorded first (D-12) */
	DROP_FRAG_DENIED = 9,     /* the first fragment was denied */
	DROP_REVOKED = 10,        /* live flow that policy denies now (D-11) */
	DROP_MIDFLOW = 11,        /* TCP without a known flow, strict mode or no direction allowed */
	DROP_NO_TABLE = 12,       /* missing slot, page, row, block or outcome */
	DROP_UNSEEN = 13,         /* passed no program of ours: interface not closed yet */
	DROP_HOST_ACTION = 14,    /* defaultEndpointToHostAction */
	DROP_CT_INVALID = 15,     /* TCP flags that make no sense together */
	DROP_ENCAP = 16,          /* IP-in-IP or VXLAN made by a pod */
	DROP_NEIGHBOUR = 17,      /* ARP or neighbour discovery of a pod for an address that is not its own */
	DROP_NEIGHBOUR_RATE = 18, /* more such messages than a pod may send */
	DROP_SOURCE_ROUTE = 19,   /* routed by its source */
	DROP_FRAG_LIMIT = 20,     /* more incomplete datagrams than a pod may have under way */
	DROP_REASONS = 21,
};
