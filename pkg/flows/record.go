// Package flows has the flow record, which is what one new verdict looks like to the outside, and the Hub that hands
// records to any number of subscribers. It knows no dataplane: what fills records in is elsewhere.
package flows

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Values of Record.Direction and Record.Verdict.
const (
	Ingress = "ingress"
	Egress  = "egress"
	Allow   = "allow"
	Deny    = "deny"
)

// The kinds of a Peer.
const (
	PeerPod     = "pod"
	PeerService = "service"
	PeerNode    = "node"
)

// Record is one new verdict: of a flow's first packet, of a flow judged again, or of a revoked one. Names are those of
// the moment of the verdict. A Record that has been published must not be changed. The JSON form is what
// `margay monitor -o json` prints.
type Record struct {
	Time      time.Time `json:"time"`                // in UTC
	Endpoint  string    `json:"endpoint"`            // whose policy judged, namespace/name; empty: no name is known for the interface
	Interface string    `json:"interface,omitempty"` // of the endpoint; empty: it is gone, or not known
	Direction string    `json:"direction"`           // Ingress or Egress
	Verdict   string    `json:"verdict"`             // Allow or Deny
	Peer      *Peer     `json:"peer,omitempty"`      // the remote side; nil: its address has no name here

	Packet
	Decision

	// Suppressed are the records that the kernel left out before this one on the same CPU, for the rate limit or because
	// its buffer was full. They may be of other endpoints.
	Suppressed uint16 `json:"suppressed,omitempty"`
}

// Unnamed is a record whose ends have no names yet.
type Unnamed struct {
	Ifindex uint32 // of the endpoint's interface
	Record  *Record
}

// Packet is the packet that was judged, and with it the flow.
type Packet struct {
	Src      netip.AddrPort `json:"src"` // the opener. Its port is 0 for protocols without ports
	Dst      netip.AddrPort `json:"dst"` // after Service translation
	Protocol string         `json:"protocol"`
	ICMP     *ICMP          `json:"icmp,omitempty"` // nil for other protocols
}

// Decision is the reason for a verdict.
type Decision struct {
	Policy string  `json:"policy,omitempty"` // tier/kind/namespace/name; empty: no policy decided
	Rule   string  `json:"rule"`             // what decided: the policy with "#ingress[0]" or "#end-of-tier", or why there is none
	Trace  *Trace  `json:"trace,omitempty"`  // nil: no Log or Pass rule on the way
	Staged *Staged `json:"staged,omitempty"` // nil: staged policies would have decided the same, or there are none
	Note   string  `json:"note,omitempty"`   // revoked, judged again, after translation, another reason than policy
}

// Peer is the remote side of a flow.
type Peer struct {
	Kind string `json:"kind"` // PeerPod, PeerService or PeerNode
	Name string `json:"name"` // namespace/name, or the name of a node
}

// ICMP is what ICMP has instead of ports.
type ICMP struct {
	Type uint8 `json:"type"`
	Code uint8 `json:"code"`
}

// Trace is what a flow met on its way to the verdict, in order. Long traces are cut.
type Trace struct {
	Logged []string `json:"logged,omitempty"` // Log rules
	Passed []string `json:"passed,omitempty"` // Pass rules, and ends of tier that passed it on
}

// Remote is the address of the remote side.
func (r *Record) Remote() netip.Addr {
	if r.Direction == Ingress {
		return r.Src.Addr()
	}
	return r.Dst.Addr()
}

// Text is the record in one line, with the time in zone.
func (r *Record) Text(zone *time.Location) string {
	line := fmt.Sprintf("%s  %-5s %-7s of %s%s  %s  %s", r.Time.In(zone).Format("2006-01-02T15:04:05.000Z07:00"), r.Verdict, r.Direction,
		r.endpointText(), r.peerText(), r.Packet.text(), r.Decision.text())
	if r.Suppressed > 0 {
		line += fmt.Sprintf("  [%d left out before it]", r.Suppressed)
	}
	return line
}

func (r *Record) endpointText() string {
	switch {
	case r.Endpoint != "":
		return r.Endpoint
	case r.Interface != "":
		return "interface " + r.Interface
	}
	return "an unknown endpoint"
}

// peerText is " from shop/web", or " to service shop/db"; empty: the remote side has no name.
func (r *Record) peerText() string {
	if r.Peer == nil {
		return ""
	}
	text := " to "
	if r.Direction == Ingress {
		text = " from "
	}
	if r.Peer.Kind != PeerPod {
		text += r.Peer.Kind + " "
	}
	return text + r.Peer.Name
}

func (p *Packet) text() string {
	if p.ICMP != nil {
		return fmt.Sprintf("%s -> %s %s type %d code %d", p.Src.Addr(), p.Dst.Addr(), p.Protocol, p.ICMP.Type, p.ICMP.Code)
	}
	if p.Src.Port() == 0 && p.Dst.Port() == 0 {
		return fmt.Sprintf("%s -> %s protocol %s", p.Src.Addr(), p.Dst.Addr(), p.Protocol)
	}
	return fmt.Sprintf("%s -> %s %s", p.Src, p.Dst, p.Protocol)
}

func (d *Decision) text() string {
	text := "by " + d.Rule
	if d.Trace != nil && len(d.Trace.Logged) > 0 {
		text += "  logged by " + strings.Join(d.Trace.Logged, ", ")
	}
	if d.Trace != nil && len(d.Trace.Passed) > 0 {
		text += "  passed by " + strings.Join(d.Trace.Passed, ", ")
	}
	if d.Staged != nil {
		text += "  staged: " + d.Staged.Verdict + " by " + d.Staged.Rule
	}
	if d.Note != "" {
		text += "  (" + d.Note + ")"
	}
	return text
}
