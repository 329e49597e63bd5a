package bpf

// Idiomatic names of the generated types. Field order, sizes and comments are in their sources, lib/types.h and
// lib/types_flows.h; contract_test.go asserts from BTF that none has a hole.
type (
	AddrInfo   = MargayAddrInfo
	Asked      = MargayAsked
	CellBlock  = MargayCellBlock
	ClassChunk = MargayClassChunk
	Config     = MargayConfig
	Counter    = MargayCounter
	Ct4Key     = MargayCt4Key
	Ct6Key     = MargayCt6Key
	CtEntry    = MargayCtEntry
	DropKey    = MargayDropKey
	DropReason = MargayDropReason
	Endpoint   = MargayEndpoint
	Event      = MargayEvent
	Grace      = MargayGrace
	HostInfo   = MargayHostInfo
	IP4        = MargayIp4
	IP6        = MargayIp6
	L4Page     = MargayL4Page
	Name       = MargayName
	Net4       = MargayNet4
	Net6       = MargayNet6
	Outcome    = MargayOutcome
	Rule       = MargayRule
	SetBits    = MargaySetBits
	Share      = MargayShare
	Slot       = MargaySlot
	SourceKey  = MargaySourceKey
	Staged     = MargayStaged
	WalkPart   = MargayWalkPart
)

// Flags and small enumerations, typed as the fields that hold them.
const (
	AddrEndpoint     = uint32(MargayAddrFlagsADDR_ENDPOINT)
	AddrHost         = uint32(MargayAddrFlagsADDR_HOST)
	AddrMayTranslate = uint32(MargayAddrFlagsADDR_MAY_TRANSLATE)
	AddrOwned        = uint32(MargayAddrFlagsADDR_OWNED)

	Endpoints        = uint32(MargayPlaceNumbersENDPOINTS)
	FurtherEndpoints = uint32(MargayPlaceNumbersFURTHER_ENDPOINTS)

	SlotInterpret   = uint32(MargaySlotFlagsSLOT_INTERPRET)
	SlotSourcePorts = uint32(MargaySlotFlagsSLOT_SOURCE_PORTS)
	SlotWide        = uint32(MargaySlotFlagsSLOT_WIDE)

	RuleAllow = uint8(MargayRuleActionRULE_ALLOW)
	RuleDeny  = uint8(MargayRuleActionRULE_DENY)
	RulePass  = uint8(MargayRuleActionRULE_PASS)
	RuleLog   = uint8(MargayRuleActionRULE_LOG)
	RuleSkip  = uint8(MargayRuleActionRULE_SKIP)

	RuleV4       = uint8(MargayRuleFlagsRULE_V4)
	RuleV6       = uint8(MargayRuleFlagsRULE_V6)
	RuleProto    = uint8(MargayRuleFlagsRULE_PROTO)
	RuleNotProto = uint8(MargayRuleFlagsRULE_NOT_PROTO)
	RuleEnd      = uint8(MargayRuleFlagsRULE_END)

	L4TCP     = int(MargayL4IndexL4TCP)
	L4UDP     = int(MargayL4IndexL4UDP)
	L4SCTP    = int(MargayL4IndexL4SCTP)
	L4ICMP    = int(MargayL4IndexL4ICMP)
	L4ICMPv6  = int(MargayL4IndexL4ICMPV6)
	L4Other   = int(MargayL4IndexL4OTHER)
	L4Indexes = int(MargayL4IndexL4INDEXES)

	Shares          = uint32(MargayFlowLimitsSHARES)
	HalfShare       = uint32(MargayFlowLimitsHALF_SHARE)
	HalfCommon      = uint32(MargayFlowLimitsHALF_COMMON)
	FragSets        = int(MargayFlowLimitsFRAG_SETS)
	FragWays        = int(MargayFlowLimitsFRAG_WAYS)
	FragPeriods     = uint32(MargayFlowLimitsFRAG_PERIODS)
	FragOwnBytes    = uint32(MargayFlowLimitsFRAG_OWN_BYTES)
	FragCommonBytes = uint32(MargayFlowLimitsFRAG_COMMON_BYTES)

	// StampOfAnother is the greatest number that is no generation.
	StampOfAnother = uint32(MargayOtherStampsSTAMP_OF_ANOTHER)

	EPReady         = uint32(MargayEndpointFlagsEP_READY)
	EPMoreAddrs     = uint32(MargayEndpointFlagsEP_MORE_ADDRS)
	EPStagedIngress = uint32(MargayEndpointFlagsEP_STAGED_INGRESS)
	EPStagedEgress  = uint32(MargayEndpointFlagsEP_STAGED_EGRESS)
	EPSources       = uint32(MargayEndpointFlagsEP_SOURCES)
	EPBeside        = uint32(MargayEndpointFlagsEP_BESIDE)
	EPBesideBefore  = uint32(MargayEndpointFlagsEP_BESIDE_BEFORE)
)

// WalkedKeys is the most flows that the agent has one run of a sweep or restamp program look at: half of those that walk4 and walk6
// have room for. Where the kernel has no preemption, no other process of the CPU runs meanwhile; so many flows take 0.05 to 0.3 ms.
const WalkedKeys = int(MargayFlowLimitsWALK_KEYS) / 2
