package bpf

import "fmt"

// Reason text and metric label of each drop reason. The enum in lib/reasons.h is the source of the numbers;
// contract_test.go fails if one of them is missing here or undocumented.
var reasons = [...]struct{ label, text string }{
	MargayDropReasonDROP_NONE:           {"none", "not dropped"},
	MargayDropReasonDROP_POLICY:         {"policy", "denied by policy"},
	MargayDropReasonDROP_NO_ENDPOINT:    {"no_endpoint", "interface is no programmed endpoint (yet)"},
	MargayDropReasonDROP_SPOOFED:        {"spoofed", "source address is not the endpoint's own"},
	MargayDropReasonDROP_NOT_IP:         {"not_ip", "neither IP nor ARP"},
	MargayDropReasonDROP_TRUNCATED:      {"truncated", "shorter than its headers say"},
	MargayDropReasonDROP_BAD_HEADER:     {"bad_header", "impossible header fields"},
	MargayDropReasonDROP_EXT_HEADERS:    {"ext_headers", "too many IPv6 extension headers"},
	MargayDropReasonDROP_FRAG_NO_FIRST:  {"frag_no_first", "later fragment without a known first one"},
	MargayDropReasonDROP_FRAG_DENIED:    {"frag_denied", "fragment of a denied packet"},
	MargayDropReasonDROP_REVOKED:        {"revoked", "live flow that policy denies now"},
	MargayDropReasonDROP_MIDFLOW:        {"midflow", "TCP packet of an unknown flow"},
	MargayDropReasonDROP_NO_TABLE:       {"no_table", "compiled policy incomplete or missing"},
	MargayDropReasonDROP_UNSEEN:         {"unseen", "interface not under control yet"},
	MargayDropReasonDROP_HOST_ACTION:    {"host_action", "defaultEndpointToHostAction is Drop"},
	MargayDropReasonDROP_CT_INVALID:     {"ct_invalid", "TCP flags that make no sense together"},
	MargayDropReasonDROP_ENCAP:          {"encap", "IP-in-IP or VXLAN made by a pod"},
	MargayDropReasonDROP_NEIGHBOUR:      {"neighbour", "ARP or neighbour discovery for an address that is not the endpoint's own"},
	MargayDropReasonDROP_NEIGHBOUR_RATE: {"neighbour_rate", "more ARP or neighbour discovery than a pod may send"},
	MargayDropReasonDROP_FRAG_LIMIT:     {"frag_limit", "more incomplete datagrams than a pod may have under way"},
	MargayDropReasonDROP_SOURCE_ROUTE:   {"source_route", "names hops of its route: IPv4 source routing, or an IPv6 routing header with segments left"},
}

// Label is the metric label of the reason, in lower_case.
func Label(r DropReason) string {
	if int(r) < len(reasons) {
		return reasons[r].label
	}
	return fmt.Sprintf("reason_%d", r)
}

// Text says in words why a packet was dropped.
func Text(r DropReason) string {
	if int(r) < len(reasons) {
		return reasons[r].text
	}
	return fmt.Sprintf("reason %d", r)
}

// Reasons is the number of drop reasons, DROP_NONE included.
func Reasons() int { return len(reasons) }
