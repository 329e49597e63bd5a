// Package diff says which verdicts change with the objects of a datastore. It compares the policy of every pod before and after, one
// packet for each kind that either state distinguishes (package verify), so that no other verdict changes than those it returns. It is pure
// and takes every pod of the cluster for local.
package diff

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/verify"
)

// Report has the verdicts that differ between two states of the objects.
type Report struct {
	Same        bool          `json:"same"` // no verdict changes, and everything was compared
	Changes     []Change      `json:"changes"`
	NotCompared []NotCompared `json:"notCompared"`
	Pods        int           `json:"pods"`
	Changed     int           `json:"changedPods"`
	Packets     int           `json:"packets"` // that were judged, each by both states
	Omitted     int           `json:"omittedChanges,omitempty"`
}

// Change is a verdict that changes for one direction of pods, which are judged alike.
type Change struct {
	Pods      []string `json:"pods"`
	Direction string   `json:"direction"`
	Family    int      `json:"family,omitempty"` // 4 or 6; 0: both, if the pods have both
	Peers     []Peer   `json:"peers"`
	Ports     []string `json:"ports"` // such as "tcp 80-89"; of a change for every packet "every protocol and port"
	Was       Decision `json:"was"`
	Becomes   Decision `json:"becomes"`
}

// Peer is a remote side: a pod or a node, or addresses that belong to none.
type Peer struct {
	Name  string       `json:"name,omitempty"`
	Some  []netip.Addr `json:"addresses"`       // all of a pod or node that are meant; otherwise examples
	Inner netip.Prefix `json:"cidr,omitzero"`   // around those of no name: the narrowest CIDR of a rule
	Other bool         `json:"other,omitempty"` // not all addresses are listed
}

// Decision is a verdict and what decides, for the first of the pods.
type Decision struct {
	Verdict string `json:"verdict"`
	Rule    string `json:"rule"`   // as model.RuleID.String returns it
	Reason  string `json:"reason"` // in words
}

// NotCompared is a pod whose verdicts are not known.
type NotCompared struct {
	Pod       string `json:"pod"`
	Direction string `json:"direction"`
	Reason    string `json:"reason"`
}

// state is one of the two states.
type state struct {
	*explain.State
	graph *calc.Graph
	mark  model.SetID // begins the names of its sets
	// renamed has the policies with those names.
	renamed map[*model.DirectionPolicy]*model.DirectionPolicy
	seen    map[*model.DirectionPolicy]bool // those of renamed whose operands are known
}

func newState(updates []model.Update, mark model.SetID) *state {
	s := explain.NewState(updates)
	return &state{s, s.Graph(), mark, map[*model.DirectionPolicy]*model.DirectionPolicy{}, map[*model.DirectionPolicy]bool{}}
}

// set returns the set of the graph that has a name in renamed policies. Not ok: it is no set of this state.
func (s *state) set(id model.SetID) (of model.SetID, ok bool) {
	text, ok := strings.CutPrefix(string(id), string(s.mark))
	return model.SetID(text), ok
}

// closed is the policy of a pod that is not there: its interface is closed.
var closed = [2]*model.DirectionPolicy{model.Ingress: {Direction: model.Ingress}, model.Egress: {Direction: model.Egress}}

// policy returns the policy of one direction of a pod, for one of its addresses.
func (s *state) policy(id model.EndpointID, d model.Direction, own netip.Addr) *model.DirectionPolicy {
	ep, ok := s.graph.LocalEndpoint(id)
	if !ok || !slices.Contains(ep.Addrs, own) {
		return closed[d]
	}
	p := ep.Ingress
	if d == model.Egress {
		p = ep.Egress
	}
	if s.renamed[p] == nil {
		s.renamed[p] = verify.Renamed(p, func(id model.SetID) model.SetID { return s.mark + id })
	}
	return s.renamed[p]
}

func (s *state) addrs(id model.EndpointID) []netip.Addr {
	if ep, ok := s.graph.LocalEndpoint(id); ok {
		return ep.Addrs
	}
	return nil
}

// refused says why the policy of a direction was not calculated; empty: it was.
func refused(p *model.DirectionPolicy) string {
	why := ""
	for _, t := range p.Tiers {
		for _, of := range t.Policies {
			if !of.Staged {
				why = cmp.Or(why, of.Refused)
			}
		}
	}
	for _, of := range p.Profiles {
		why = cmp.Or(why, of.Refused)
	}
	return why
}

// Compare compares the states that two lists of updates leave.
func Compare(before, after []model.Update) (*Report, error) {
	c := &comparing{before: newState(before, "before "), after: newState(after, "after "),
		report: &Report{Changes: []Change{}, NotCompared: []NotCompared{}},
		done:   map[combination]*outcome{}, kinds: map[pair]func(netip.Addr) verify.Signature{}, at: map[string]int{}}
	c.findOwners()
	if err := c.prepare(); err != nil {
		return nil, err
	}
	for _, id := range c.pods {
		known := c.changed
		for _, d := range []model.Direction{model.Egress, model.Ingress} {
			if err := c.pod(id, d); err != nil {
				return nil, err
			}
		}
		if c.changed > known {
			c.report.Changed++
		}
	}
	c.finish()
	return c.report, nil
}

// Limit leaves out changes beyond a number; 0: none.
func (r *Report) Limit(most int) {
	if most > 0 && len(r.Changes) > most {
		r.Omitted = len(r.Changes) - most
		r.Changes = r.Changes[:most]
	}
}
