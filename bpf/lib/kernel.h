/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The few kernel structs that are read, and the state of a packet in the kernel's own conntrack. They are declared with the
 * fields used only; CO-RE finds those in the running kernel. */
#pragma once
#include <bpf/bpf_core_read.h>
#include "packet.h"

#define IFNAMSIZ 16

struct net_device {
	int ifindex;
	void *tcx_ingress; /* NULL: no program is attached there */
	void *tcx_egress;  /* likewise */
	char name[IFNAMSIZ];
	const unsigned char *dev_addr;
} __attribute__((preserve_access_index));

struct dst_entry {
	struct net_device *dev;
} __attribute__((preserve_access_index));

struct ipv6hdr {
	__u8 nexthdr;
} __attribute__((preserve_access_index));

struct nf_hook_state {
	__u8 hook;
	__u8 pf;
	struct net_device *in, *out;
} __attribute__((preserve_access_index));

struct sk_buff {
	__u32 len, data_len;
	__u32 mark;
	__u32 truesize;
	int skb_iif;
	struct net_device *dev;
	__u8 ipvs_property : 1;
	__u8 ip_summed : 2;
	__u16 csum_start, csum_offset;
	unsigned char *head, *data;
	unsigned long _skb_refdst;
	unsigned long _nfct;
} __attribute__((preserve_access_index));

union nf_inet_addr {
	__u32 all[4];
} __attribute__((preserve_access_index));

struct nf_conntrack_man {
	union nf_inet_addr u3;
	union {
		__be16 all;
	} u;
} __attribute__((preserve_access_index));

struct nf_conntrack_tuple {
	struct nf_conntrack_man src;
	struct {
		union nf_inet_addr u3;
		union {
			__be16 all;
		} u;
		__u8 protonum;
	} dst;
} __attribute__((preserve_access_index));

struct nf_conntrack_tuple_hash {
	struct nf_conntrack_tuple tuple;
} __attribute__((preserve_access_index));

struct ip_ct_tcp_state {
	__u8 flags;
} __attribute__((preserve_access_index));

struct ip_ct_tcp {
	struct ip_ct_tcp_state seen[2];
} __attribute__((preserve_access_index));

union nf_conntrack_proto {
	struct ip_ct_tcp tcp;
} __attribute__((preserve_access_index));

struct nf_conn {
	struct nf_conntrack_tuple_hash tuplehash[2];
	unsigned long status;
	union nf_conntrack_proto proto;
} __attribute__((preserve_access_index));

struct bpf_nf_ctx {
	const struct nf_hook_state *state;
	struct sk_buff *skb;
};

extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym;
extern void *bpf_cast_to_kern_ctx(void *obj) __ksym;

/* The low bits of sk_buff._nfct are an enum ip_conntrack_info, the others the entry. */
#define NFCT_INFO 7UL
#define IP_CT_ESTABLISHED 0 /* answered, and the packet travels as the connection was opened */
#define IP_CT_NEW 2
#define IP_CT_IS_REPLY 3
#define IPS_SRC_NAT 16
#define IPS_DST_NAT 32
#define IP_CT_TCP_FLAG_BE_LIBERAL 8

/* The state of a packet in the kernel's conntrack. */
enum kernel_ct {
	KERNEL_CT_NONE,     /* it does not follow it */
	KERNEL_CT_NEW,      /* its entry begins with this packet, or has had no answer yet */
	KERNEL_CT_ORIGINAL, /* it travels as the connection was opened */
	KERNEL_CT_REPLY,    /* it travels the other way */
};

static __always_inline enum kernel_ct kernel_ct(unsigned long nfct)
{
	if (!(nfct & ~NFCT_INFO))
		return KERNEL_CT_NONE;
	if ((nfct & NFCT_INFO) >= IP_CT_IS_REPLY)
		return KERNEL_CT_REPLY;
	return (nfct & NFCT_INFO) == IP_CT_NEW ? KERNEL_CT_NEW : KERNEL_CT_ORIGINAL;
}

static __always_inline struct nf_conn *kernel_entry(unsigned long nfct)
{
	return bpf_rdonly_cast((void *)(nfct & ~NFCT_INFO), bpf_core_type_id_kernel(struct nf_conn));
}

/* Whether an entry is of TCP and began with a packet in mid-flow: it does not know who has opened the connection (nf_conntrack_proto_tcp.c,
 * tcp_new, gives both ends this flag then; options of later packets leave it). */
static __always_inline bool began_midway(unsigned long nfct)
{
	const struct nf_conn *ct = kernel_entry(nfct);

	return ct->tuplehash[0].tuple.dst.protonum == PROTO_TCP &&
	       (ct->proto.tcp.seen[0].flags & IP_CT_TCP_FLAG_BE_LIBERAL);
}

/* Whether the packet is one that IPVS has translated, or translated back. A kernel without ip_vs has no such bit. */
static __always_inline bool by_ipvs(const struct sk_buff *skb)
{
	return bpf_core_field_exists(skb->ipvs_property) && BPF_CORE_READ_BITFIELD(skb, ipvs_property);
}

/* The entry at a TC hook. A packet from a pod has none: the kernel takes it away when a packet changes its namespace. */
static __always_inline unsigned long nfct_at_tc(struct __sk_buff *skb)
{
	struct sk_buff *kern = bpf_cast_to_kern_ctx(skb);

	return kern->_nfct;
}

/* Whether the kernel translates an end of the connection that a packet at a TC hook belongs to. */
static __always_inline bool translated_at_tc(struct __sk_buff *skb)
{
	unsigned long nfct = nfct_at_tc(skb);

	return (nfct & ~NFCT_INFO) && (kernel_entry(nfct)->status & (IPS_SRC_NAT | IPS_DST_NAT));
}

/* Copies an address of an entry's tuple. A macro: CO-RE wants constant indexes. */
#define KERNEL_ADDR(to, from, family)               \
	do {                                        \
		(to)[0] = (from).u3.all[0];         \
		if ((family) == 6) {                \
			(to)[1] = (from).u3.all[1]; \
			(to)[2] = (from).u3.all[2]; \
			(to)[3] = (from).u3.all[3]; \
		}                                   \
	} while (0)
