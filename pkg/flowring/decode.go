// Package flowring turns the verdict events of the kernel's ring buffer into flow records: in the order of their times,
// with the names of that moment. Records in the buffer go to one reader each, so there should be one: the agent.
package flowring

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/flows"
	"github.com/margay-project/margay/pkg/model"
)

// Names reads the names of rules that are pinned. bpfmaps.Names does.
type Names interface {
	Rule(id uint32) (name string, ok bool, err error)
}

// Rules reads match tables that are pinned. bpfmaps.Maps does.
type Rules interface {
	ReadRules(slot uint32) ([]bpf.Rule, error)
}

// decoder makes the records of one batch. It caches rules within the batch only: later, numbers
// may be other rules'.
type decoder struct {
	pinned Names
	rules  Rules
	names  map[uint32]string
	tables map[uint64][]bpf.Rule // by policy word
}

func newDecoder(pinned Names, rules Rules) *decoder {
	return &decoder{pinned: pinned, rules: rules, names: map[uint32]string{}, tables: map[uint64][]bpf.Rule{}}
}

// record is the event without the names of its ends. at is its time.
func (d *decoder) record(e *bpf.Event, at time.Time) *flows.Record {
	r := &flows.Record{
		Time: at, Direction: flows.Egress, Verdict: flows.Allow, Suppressed: e.Suppressed,
		Packet:   flows.Packet{Protocol: model.ProtocolName(e.Proto)},
		Decision: flows.Decision{Rule: d.rule(e.RuleId), Note: note(e)},
	}
	if has(e, bpf.MargayEventFlagsEVENT_INGRESS) {
		r.Direction = flows.Ingress
	}
	if e.Reason != 0 {
		r.Verdict = flows.Deny
	}
	src, dst := netip.AddrFrom4([4]byte(e.Src[:4])), netip.AddrFrom4([4]byte(e.Dst[:4]))
	if has(e, bpf.MargayEventFlagsEVENT_IPV6) {
		src, dst = netip.AddrFrom16(e.Src), netip.AddrFrom16(e.Dst)
	}
	sport, dport := e.Sport, e.Dport
	switch {
	case e.Proto == model.ProtoICMP && src.Is4(), e.Proto == model.ProtoICMPv6 && src.Is6():
		r.ICMP = &flows.ICMP{Type: uint8(dport >> 8), Code: uint8(dport)}
		sport, dport = 0, 0
	case !model.HasPorts(e.Proto):
		sport, dport = 0, 0
	}
	r.Src, r.Dst = netip.AddrPortFrom(src, sport), netip.AddrPortFrom(dst, dport)
	// A profile is no policy: "profile/kns.shop", against "default/knp/shop/db" and "default/gnp/deny-all".
	if policy, _, ok := strings.Cut(r.Rule, "#"); ok && strings.Count(policy, "/") > 1 {
		r.Policy = policy
	}
	if has(e, bpf.MargayEventFlagsEVENT_STAGED) {
		r.Staged = d.staged(e, r)
	}
	logged := d.trace(e, e.Log[:min(int(e.Nlogs), len(e.Log))])
	passed := d.trace(e, e.Pass[:min(int(e.Npasses), len(e.Pass))])
	if len(logged)+len(passed) > 0 {
		r.Trace = &flows.Trace{Logged: logged, Passed: passed}
	}
	return r
}

// staged is the verdict of staged policies, which is the other one than the record's.
func (d *decoder) staged(e *bpf.Event, r *flows.Record) *flows.Staged {
	s := &flows.Staged{Verdict: flows.Deny, Rule: d.rule(e.StagedId)}
	if r.Verdict == flows.Deny {
		s.Verdict = flows.Allow
	}
	s.Rule = strings.TrimPrefix(s.Rule, "staged:"+r.Direction+":")
	s.Policy, _, _ = strings.Cut(s.Rule, "#")
	return s
}

func has(e *bpf.Event, flag bpf.MargayEventFlags) bool { return e.Flags&uint8(flag) != 0 }

func note(e *bpf.Event) string {
	var notes []string
	if has(e, bpf.MargayEventFlagsEVENT_REVOKED) {
		notes = append(notes, "revoked")
	}
	if has(e, bpf.MargayEventFlagsEVENT_REJUDGED) {
		notes = append(notes, "judged again")
	}
	if has(e, bpf.MargayEventFlagsEVENT_TRANSLATED) {
		notes = append(notes, "after translation")
	}
	if reason := bpf.DropReason(e.Reason); reason != bpf.MargayDropReasonDROP_NONE && reason != bpf.MargayDropReasonDROP_POLICY {
		notes = append(notes, bpf.Text(reason))
	}
	return strings.Join(notes, ", ")
}

// rule is the API rule of a number in rule_stats. A name that cannot be read costs the record nothing else.
func (d *decoder) rule(id uint32) string {
	if id == 0 {
		return "no rule"
	}
	if name, ok := d.names[id]; ok {
		return name
	}
	name, ok, err := d.pinned.Rule(id)
	switch {
	case err != nil:
		name = fmt.Sprintf("rule %d, whose name cannot be read", id)
	case !ok:
		name = fmt.Sprintf("rule %d, which is gone", id)
	}
	d.names[id] = name
	return name
}

// trace names entries of the match table that the event was judged by.
func (d *decoder) trace(e *bpf.Event, entries []uint16) []string {
	if len(entries) == 0 {
		return nil
	}
	word := bpfmaps.PolicyWord(e.Slot, e.Generation)
	table, ok := d.tables[word]
	if !ok {
		table, _ = d.rules.ReadRules(e.Slot) // of a table that cannot be read, as of one that is gone, the numbers are left
		d.tables[word] = table
	}
	var list []string
	for _, i := range entries {
		if int(i) < len(table) {
			list = append(list, d.rule(table[i].Id))
		} else {
			list = append(list, fmt.Sprintf("entry %d, which is gone", i))
		}
	}
	return list
}
