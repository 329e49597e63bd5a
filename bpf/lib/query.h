/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One question to a compiled policy, and its answer. */
#pragma once
#include "packet.h"

/* No entry of the ordered match table: a part is missing, or row 0, the class is not known to the table. */
#define NO_RULE 0xffff

/* One question to a policy, and its answer. */
struct query {
	__u64 word;  /* of the endpoint: slot << 32 | generation */
	__u32 class; /* of the remote address */
	__u16 l4;    /* destination port, type << 8 | code, or protocol */
	__u16 sport;
	__u8 proto;
	__u8 family;
	/* answer */
	__u8 allow;
	__u8 missing; /* 1: denied because a part of the policy is not there */
	__u16 rule;
	__u8 nlogs;
	__u8 npasses;
	__u32 rule_id;
	__u16 log[4];
	__u16 pass[6];
};
