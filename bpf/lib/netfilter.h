/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* After kube-proxy's translation: the egress judgement that from_pod put off (D-17), and the guard that closes workload
 * interfaces our TC programs are not on yet (D-18).
 *
 * Translation by NAT is over before FORWARD and LOCAL_IN. IPVS takes packets out of LOCAL_IN, before this program's
 * priority there, and sends them on through LOCAL_OUT with the backend in place; to a backend of the node itself
 * they stay in LOCAL_IN. It has a connection table of its own, so a packet that it sends on is always compared with
 * the judged flow. */
#pragma once
#include "decide.h"
#include "translated.h"

#define NF_DROP 0
#define NF_ACCEPT 1
#define NF_INET_LOCAL_IN 1
#define NF_INET_FORWARD 2
#define NF_INET_LOCAL_OUT 3
#define NFPROTO_IPV6 10

/* Whether the name of a device begins as those of workload interfaces do. The first 8 bytes are compared at once;
 * bytes after the prefix are shifted out. */
static __always_inline bool is_workload(const struct net_device *dev)
{
	__u64 name = *(const __u64 *)dev->name, prefix = *(const volatile __u64 *)cfg.interface_prefix;

	return cfg.interface_prefix_len && !((name ^ prefix) << (64 - 8 * cfg.interface_prefix_len));
}

/* Reads the packet at a netfilter hook: it starts with the network header. Global, so that the verifier walks it once,
 * whoever calls it. */
__noinline int parse_nf(struct bpf_nf_ctx *ctx, struct pkt *p)
{
	struct bpf_dynptr dyn;
	struct loader l = { .dyn = &dyn };

	if (!p)
		return -DROP_TRUNCATED;
	__builtin_memset(p, 0, sizeof(*p));
	if (bpf_dynptr_from_skb((struct __sk_buff *)ctx->skb, 0, &dyn))
		return -DROP_TRUNCATED;
	if (ctx->state->pf == NFPROTO_IPV6)
		return parse_ipv6(&l, p, 0, ctx->skb->len);
	return parse_ipv4(&l, p, 0, ctx->skb->len);
}

static __always_inline int nf_drop(__u32 ifindex, int reason, enum hook hook, __u32 len)
{
	count_drop(ifindex, -reason, hook, len);
	return NF_DROP;
}

/* What precheck returns for a packet from a workload: these bits, and above them the index of its interface, which may have 31 bits. */
#define NF_JUDGE 1 /* egress is to be judged */
#define NF_ASK 2   /* it must be one that the node wants */
#define NF_WORKLOAD 4
#define NF_BACK 8    /* it goes back to the interface that it came from */
#define NF_ANSWER 16 /* to the node; an answer by from_pod, maybe, and none by the kernel */
#define NF_INDEX 32  /* bits to shift */

/* Whether a packet goes to a link-local address of IPv6. The pod is alone on its link, so a packet that goes back there finds nothing. The
 * node would make a neighbour entry for each address, and has room for 1,024 for all pods (D-23). */
static __always_inline bool to_link_local(const struct tuple *t)
{
	return t->family == 6 && (t->dst[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000);
}

/* Whether a packet to the node passes in spite of host_drop (D-24), where the kernel's conntrack does not follow it, or not from its
 * beginning: an answer in a flow that the node has opened, by our own entry, and neighbour discovery. A later fragment passes,
 * since it is useless without its first one. */
static __always_inline bool wanted_unfollowed(struct pkt *p)
{
	struct ct_entry *e;

	if (p->flags & PKT_LATER_FRAGMENT)
		return true;
	mark_nd(p);
	if (p->flags & PKT_LINK_LOCAL_ND)
		return p->l4 >> 8 >= 133 && p->l4 >> 8 <= 136;
	e = ct_find(&p->t);
	return e && (e->flags & CT_FROM_HOST) && !from_opener(&p->t, e);
}

/* Whether from_pod has judged a packet with a mark, and not put it off. */
static __always_inline bool is_judged(__u32 mark)
{
	mark &= cfg.mark_seen | cfg.mark_judge;
	return mark && mark != (cfg.mark_seen | cfg.mark_judge);
}

/* Checks that from_pod makes of every packet, for one that it has not seen: the source is the pod's, and there are no IPv4 options, of which
 * one may be a source route. Returns 0 or a drop reason. A global function, to save stack. */
__noinline int check_unseen(struct bpf_nf_ctx *ctx, const struct endpoint *ep, const struct pkt *p)
{
	if (!ep || !p)
		return -DROP_UNSEEN;
	if (ctx->skb->mark & (cfg.mark_seen | cfg.mark_judge))
		return 0;
	if (p->t.family == 4 && p->l4_off > 20)
		return -DROP_BAD_HEADER;
	return owns(ep, &p->t, false) || has_further_source(ep, &p->t) ? 0 : -DROP_SPOOFED;
}

/* Whether it is not to be believed that a packet to the node is an answer, although the kernel's conntrack says so: it has not seen the
 * beginning of the connection, and the packet of the node that its entry began with may have been an answer itself (D-20). While the flow
 * tables are young it is believed, as other answers are. */
static __always_inline bool doubtful(unsigned long nfct)
{
	return began_midway(nfct) && !in_grace();
}

/* Judges one packet from a workload: whether it may go to the node, if NF_ASK says so, and egress policy for the
 * destination that it has now. */
static __always_inline int judge_present(struct bpf_nf_ctx *ctx, struct endpoint *ep, __u32 what)
{
	__u32 ifindex = ep->ifindex;
	bool to_host = ctx->state->hook == NF_INET_LOCAL_IN;
	struct sk_buff *skb = ctx->skb;
	unsigned long nfct = skb->_nfct;
	struct tuple ends;
	struct pkt p;
	int r;

	r = parse_nf(ctx, &p);
	if (r)
		return nf_drop(ifindex, r, FROM_POD, skb->len);
	if ((what & NF_BACK) && to_link_local(&p.t))
		return nf_drop(ifindex, -DROP_NO_ENDPOINT, FROM_POD, skb->len);
	if (cfg.host_drop && (what & NF_ASK) && !wanted_unfollowed(&p))
		return nf_drop(ifindex, -DROP_HOST_ACTION, FROM_POD, skb->len);
	if (!(what & NF_JUDGE) && !((what & NF_ANSWER) && answers_another(&p)))
		return NF_ACCEPT;
	/* from_pod has judged it by the flow that it quotes. IPVS sends an error on only if it is about a connection of its own. */
	if ((p.flags & PKT_ICMP_ERROR) && by_ipvs(skb) && is_judged(skb->mark))
		return NF_ACCEPT;
	r = check_unseen(ctx, ep, &p);
	if (r)
		return nf_drop(ifindex, r, FROM_POD, skb->len);
	if (p.flags & PKT_LATER_FRAGMENT) {
		r = later_fragment(&p, ep->share & (SHARES - 1), AFTER_TRANSLATION);
	} else {
		enum kernel_ct word = kernel_ct(nfct);
		__u32 how = word == KERNEL_CT_NONE ? UNFOLLOWED : 0;

		if (word == KERNEL_CT_ORIGINAL && by_ipvs(skb))
			how = AGAIN;
		else if (word == KERNEL_CT_ORIGINAL && (nfct & NFCT_INFO) == IP_CT_ESTABLISHED)
			how = ANSWERED;

		original_ends(nfct, &p, &ends);
		if (encapsulates(&p))
			r = -DROP_ENCAP;
		else if (p.flags & PKT_ICMP_ERROR)
			r = error_follows(ep, &p, nfct) ? PASS : judge_error(ep, &p, AFTER_TRANSLATION, skb->len);
		else if (word == KERNEL_CT_REPLY && !(to_host && doubtful(nfct)))
			r = owns(ep, &ends, false) ? judge_reply(ep, &p, &ends, skb->len, to_host) : -DROP_MIDFLOW;
		else
			r = judge_translated(ep, &p, &ends, skb->len, how);
		r = beside(ep, &p, AFTER_TRANSLATION, r);
		if (p.flags & PKT_FIRST_FRAGMENT)
			first_fragment(&p, ep->share & (SHARES - 1), AFTER_TRANSLATION, r);
	}
	if (r < 0)
		return nf_drop(ifindex, r, FROM_POD, skb->len);
	return NF_ACCEPT;
}

/* Whether nothing may leave by an interface: it is a workload's, and no ready endpoint. Nor may it if no program is attached
 * there: while no agent runs, the number of an interface that has gone may come back with that of a new pod. Only where another
 * dataplane judges by now, or policy ends, programs are detached before this one. The name comes last: nothing else that a
 * packet meets reads it, so it is seldom in the cache. */
static __always_inline bool closed(const struct net_device *out)
{
	struct endpoint *ep;

	if (!out)
		return false;
	if (out->tcx_egress && ready_endpoint(out->ifindex))
		return false;
	if (!is_workload(out))
		return false;
	ep = ready_endpoint(out->ifindex);
	return !ep || !(out->tcx_egress || (ep->flags & EP_BESIDE));
}

/* The mark that counts for a packet which from_pod has not seen; 0: it is dropped. A datagram whose first fragment came before the program was
 * attached has no mark. While the other dataplane judges it, this one records a flow that begins with it. Afterwards this one judges it in
 * any case, if a program is attached: the number of an interface without one may be that of a pod that has gone, as for closed(). */
static __always_inline __u32 mark_of_unseen(const struct net_device *in)
{
	struct endpoint *ep = ready_endpoint(in->ifindex);

	if (ep && (ep->flags & EP_BESIDE))
		return cfg.mark_judge;
	if (ep && (ep->flags & EP_BESIDE_BEFORE) && in->tcx_ingress)
		return cfg.mark_seen | cfg.mark_judge;
	return 0;
}

/* Whether from_pod has judged a packet by its destination then, and an answered entry of the kernel has translated it since. A
 * reset of our own has this form, too: it goes where the connection went that it ends. */
static __always_inline bool translated_unexpectedly(const struct sk_buff *skb, unsigned long nfct)
{
	if ((skb->mark & (cfg.mark_seen | cfg.mark_judge | cfg.mark_own)) != cfg.mark_seen)
		return false;
	return nfct > NFCT_INFO && (nfct & NFCT_INFO) < IP_CT_NEW && (kernel_entry(nfct)->status & IPS_DST_NAT);
}

/* Whether a forwarded packet is an answer to somebody whose address the node has replaced by its own. from_pod has seen the node's
 * address, and so did the flow that it has judged the packet by; that may be another one with the same port. */
static __always_inline bool translated_back(const struct nf_hook_state *state, unsigned long nfct)
{
	return state->hook == NF_INET_FORWARD && kernel_ct(nfct) == KERNEL_CT_REPLY &&
	       (kernel_entry(nfct)->status & IPS_SRC_NAT);
}

/* Whether a packet of a workload is to be judged on its present destination: what from_pod has put off, what it did not expect
 * to be translated, and every packet with which an entry of the kernel's conntrack begins, if it has been translated. Whatever our own
 * entry says, the backend is a new one (D-21). */
static __always_inline bool to_be_judged(const struct sk_buff *skb, __u32 mark, enum kernel_ct word, unsigned long nfct)
{
	if (mark == (cfg.mark_seen | cfg.mark_judge))
		return true;
	if (mark == cfg.mark_judge)
		return word == KERNEL_CT_NONE || word == KERNEL_CT_NEW;
	if (word == KERNEL_CT_NEW)
		return kernel_entry(nfct)->status & IPS_DST_NAT;
	return translated_unexpectedly(skb, nfct);
}

/* LOCAL_OUT: by what interface the packet leaves. Its own route is the one after translation; that of the hook's state is
 * the one before. */
static __always_inline struct net_device *route_out(const struct sk_buff *skb, struct net_device *out)
{
	unsigned long ref = skb->_skb_refdst & ~1UL;
	struct dst_entry *dst;

	if (!ref)
		return out;
	dst = bpf_rdonly_cast((void *)ref, bpf_core_type_id_kernel(struct dst_entry));
	return dst->dev;
}

/* LOCAL_OUT: by what interface IPVS has received the packet; NULL: it is this node's own. */
static __always_inline struct net_device *ipvs_in(const struct sk_buff *skb)
{
	struct net_device *dev = skb->dev;

	return dev && skb->skb_iif && dev->ifindex == skb->skb_iif ? dev : NULL;
}

/* Whether a packet is neighbour discovery between the node and a pod that is not ready, which passes (D-18): to the node, after from_pod
 * has limited it, or the node's own. Asked about packets that are dropped otherwise, and not inline, to save stack. */
__noinline int early_nd(struct bpf_nf_ctx *ctx)
{
	bool own = ctx->state->hook == NF_INET_LOCAL_OUT;
	struct pkt p;

	if (!own && ctx->state->hook != NF_INET_LOCAL_IN)
		return 0;
	if (ctx->state->pf != NFPROTO_IPV6 || parse_nf(ctx, &p))
		return 0;
	if (own && from_the_link(&p))
		return 1;
	mark_nd(&p);
	return !!(p.flags & PKT_LINK_LOCAL_ND);
}

#define LOOPBACK_IFINDEX 1

/* Whether the node translates a packet, of whomever, so that it goes to the port of a tunnel: a pod of another node has sent it to a port
 * of a Service that was no tunnel's yet (semantics §15). */
static __always_inline bool leads_to_tunnel(const struct sk_buff *skb, const struct net_device *in, unsigned long nfct)
{
	enum kernel_ct word = kernel_ct(nfct);
	const struct nf_conn *ct;

	if (cfg.allow_encap || in->ifindex == LOOPBACK_IFINDEX || (word != KERNEL_CT_NEW && word != KERNEL_CT_ORIGINAL))
		return false;
	ct = kernel_entry(nfct);
	if (!(ct->status & IPS_DST_NAT) && !by_ipvs(skb))
		return false;
	return ct->tuplehash[0].tuple.dst.protonum == PROTO_UDP &&
	       is_tunnel_port(bpf_ntohs(ct->tuplehash[1].tuple.src.u.all));
}

/* Decides about a packet without reading it, as far as possible: at FORWARD, at LOCAL_IN after IPVS, and at
 * LOCAL_OUT, where packets of IPVS and of this node itself leave. Returns NF_ACCEPT, NF_DROP, or the packet's
 * workload and the checks to do. A global function, to save stack, and so that the verifier walks the code after
 * it once and not for each way through it. */
__noinline __u64 precheck(struct bpf_nf_ctx *ctx)
{
	const struct nf_hook_state *state = ctx->state;
	struct net_device *in = state->in, *out = state->out;
	bool to_host = state->hook == NF_INET_LOCAL_IN;
	struct sk_buff *skb = ctx->skb;
	unsigned long nfct = skb->_nfct;
	enum kernel_ct word = kernel_ct(nfct);
	__u32 mark = skb->mark & (cfg.mark_seen | cfg.mark_judge);
	bool ipvs = by_ipvs(skb), judge;
	__u32 ask = 0;

	if (state->hook == NF_INET_LOCAL_OUT) {
		out = route_out(skb, out);
		in = ipvs ? ipvs_in(skb) : NULL;
	} else if (!in) {
		return NF_ACCEPT;
	}
	if (in && !mark && is_workload(in)) {
		mark = mark_of_unseen(in);
		if (!mark)
			return nf_drop(in->ifindex, -DROP_UNSEEN, FROM_POD, skb->len);
	}
	if (!to_host && closed(out))
		return !in && early_nd(ctx) ? NF_ACCEPT : nf_drop(out->ifindex, -DROP_NO_ENDPOINT, TO_POD, skb->len);
	if (!in)
		return NF_ACCEPT;
	if (leads_to_tunnel(skb, in, nfct) && !(out && is_workload(out)))
		return nf_drop(in->ifindex, -DROP_ENCAP, FROM_POD, skb->len);
	if (cfg.host_drop && to_host && is_workload(in)) {
		/* Answers in flows that the node has opened pass. */
		if (word == KERNEL_CT_NONE || (word == KERNEL_CT_REPLY && doubtful(nfct)))
			ask = NF_ASK;
		else if (word != KERNEL_CT_REPLY)
			return nf_drop(in->ifindex, -DROP_HOST_ACTION, FROM_POD, skb->len);
	}
	judge = (ipvs && word != KERNEL_CT_REPLY) || to_be_judged(skb, mark, word, nfct) ||
		translated_back(state, nfct);
	if (!judge && to_host && mark == cfg.mark_seen && word != KERNEL_CT_REPLY)
		ask |= NF_ANSWER;
	if (!judge && !ask && in != out && word != KERNEL_CT_NEW && word != KERNEL_CT_NONE) /* the usual case */
		return NF_ACCEPT;
	if (!is_workload(in))
		return NF_ACCEPT;
	return (__u64)(__u32)in->ifindex << NF_INDEX | NF_WORKLOAD | ask | (judge ? NF_JUDGE : 0) |
	       (in == out ? NF_BACK : 0);
}

/* Whether the kernel's conntrack has translated a packet that it follows so that it is to be judged: an answered packet that from_pod did
 * not expect to be translated, or an answer that goes to another address than from_pod has seen. The same as
 * translated_unexpectedly and translated_back, with one look at the entry. */
static __always_inline bool moved(const struct sk_buff *skb, unsigned long nfct)
{
	unsigned long status = kernel_entry(nfct)->status;

	if ((nfct & NFCT_INFO) >= IP_CT_IS_REPLY)
		return status & IPS_SRC_NAT;
	return (status & IPS_DST_NAT) && !(skb->mark & (cfg.mark_judge | cfg.mark_own));
}

/* Whether the kernel's conntrack begins an entry with a packet that from_pod has judged, or does not follow it, and judge need not judge
 * it again: its destination is that which from_pod has seen. The mark alone is no proof of that, since rules of others may set it. */
static __always_inline bool begins_as_judged(const struct net_device *in, __u32 mark, unsigned long nfct)
{
	if (mark == cfg.mark_judge || !ready_endpoint(in->ifindex))
		return false;
	return nfct <= NFCT_INFO || !(kernel_entry(nfct)->status & IPS_DST_NAT);
}

/* Whether a forwarded packet is accepted as nearly all are: it is not put off, the node has not translated it, it does not go back to its
 * pod, and no interface is closed. precheck comes to the same result by four times as many instructions. */
static __always_inline bool usual(struct bpf_nf_ctx *ctx)
{
	const struct nf_hook_state *state = ctx->state;
	struct net_device *in = state->in, *out = state->out;
	struct sk_buff *skb = ctx->skb;
	unsigned long nfct = skb->_nfct;
	__u32 mark = skb->mark & (cfg.mark_seen | cfg.mark_judge);

	if (state->hook != NF_INET_FORWARD || !in || !out || by_ipvs(skb))
		return false;
	if (mark == (cfg.mark_seen | cfg.mark_judge))
		return false;
	if (!mark) /* no pod of this node has sent it, so there is no egress policy to ask */
		return !is_workload(in) && !closed(out) && !leads_to_tunnel(skb, in, nfct);
	/* After !mark: of what the node forwards for others, much leaves by the interface that it came by. */
	if (in == out)
		return false;
	if (nfct > NFCT_INFO && (nfct & NFCT_INFO) != IP_CT_NEW) {
		if (moved(skb, nfct))
			return false;
	} else if (!begins_as_judged(in, mark, nfct)) {
		return false;
	}
	return !closed(out);
}

static __always_inline int judge_packet(struct bpf_nf_ctx *ctx)
{
	__u64 r = precheck(ctx);
	__u32 ifindex = r >> NF_INDEX;
	struct endpoint *ep;

	if (!(r & NF_WORKLOAD))
		return r == NF_ACCEPT ? NF_ACCEPT : NF_DROP;
	/* The mark alone is no proof: rules of others may set it. */
	ep = ready_endpoint(ifindex);
	if (!ep)
		return early_nd(ctx) ? NF_ACCEPT : nf_drop(ifindex, -DROP_NO_ENDPOINT, FROM_POD, ctx->skb->len);
	return r & (NF_JUDGE | NF_ASK | NF_BACK | NF_ANSWER) ? judge_present(ctx, ep, r) : NF_ACCEPT;
}
