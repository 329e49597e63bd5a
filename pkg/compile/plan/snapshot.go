package plan

import (
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// Snapshot is what a restarted agent has read back from the kernel, the work of an earlier one that may have stopped
// between any two writes.
type Snapshot struct {
	Sets    map[uint32]string // set number -> NameText of its id
	Rules   map[uint32]string // rule number -> NameText of its id
	Classes []classes.Class   // Family is not used: it is that of the class's addresses
	// Addrs are all address entries: prefix, class and flags.
	Addrs []classes.AddrChange
	// Tables are those that endpoints are bound to. Their ids are the dataplane's choice, from 1. An endpoint bound to
	// one that is not here, because it could not be read, is bound again or unbound by the first plan.
	Tables    []SnapshotTable
	Endpoints []SnapshotEndpoint
}

// SnapshotTable is the match table of a compiled policy in the kernel.
type SnapshotTable struct {
	ID        table.ID
	Direction model.Direction
	Rules     []bpf.Rule
	Short     bool // it has no row for some of the classes that addresses have, and denies these: there was no room for a larger one
}

// SnapshotEndpoint is an endpoint that the kernel knows. An endpoint of the datastore with the same ID, or else with
// the same Iface, is taken to be it: an ID the kernel does not keep may be made up. Addrs may be incomplete; then the
// endpoint is bound again, to the same tables.
type SnapshotEndpoint struct {
	ID              model.EndpointID
	Iface           string
	Addrs           []netip.Addr
	Ingress, Egress table.ID
}

// maxNameText is the most bytes a name in the kernel has, without the zero at its end.
const maxNameText = len(bpf.Name{}.Text) - 1

// NameText returns the text by which the kernel's maps know a set or rule: its id, or if that is too long as much of it
// as fits, "~" and a digest of all of it.
func NameText(id string) string {
	if len(id) <= maxNameText {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	digest := "~" + base64.RawURLEncoding.EncodeToString(sum[:18])
	return id[:maxNameText-len(digest)] + digest
}

// adopt makes the snapshot the state that the first plan starts from.
func (c *Compiler) adopt(s *Snapshot) {
	sets, rules := s.names()
	c.sets.adopt(sets)
	c.rules.adopt(rules)
	c.classes.Adopt(s.Classes, s.Addrs)
	c.addrs.adopt(s.Addrs)
	tables, short := map[table.ID]*program{}, false
	for _, t := range s.Tables {
		if len(t.Rules) > 0 {
			tables[t.ID] = c.programs.adopt(t, rules)
		}
		short = short || t.Short
	}
	c.back.retryTables(short)
	for _, e := range s.Endpoints {
		for _, id := range []table.ID{e.Ingress, e.Egress} {
			if id != 0 && tables[id] == nil {
				c.programs.noteUnreadable(id)
			}
		}
		c.endpoints.adopt(e, tables[e.Ingress], tables[e.Egress])
	}
}

// names returns the names of all numbers in the snapshot; those that have none get one of their own.
func (s *Snapshot) names() (sets map[uint32]model.SetID, rules map[uint32]string) {
	sets, rules = map[uint32]model.SetID{}, maps.Clone(s.Rules)
	if rules == nil {
		rules = map[uint32]string{}
	}
	var usedSets, usedRules []uint32
	for _, class := range s.Classes {
		usedSets = append(usedSets, class.Sets...)
	}
	for _, t := range s.Tables {
		usedSets, usedRules = append(usedSets, match.SetNumbers(t.Rules)...), append(usedRules, match.RuleNumbers(t.Rules)...)
	}
	for _, num := range usedSets {
		sets[num] = model.SetID("@unnamed-" + strconv.Itoa(int(num)))
	}
	delete(sets, 0)
	taken := map[model.SetID]bool{}
	for _, num := range slices.Sorted(maps.Keys(s.Sets)) {
		if id := model.SetID(s.Sets[num]); !taken[id] {
			sets[num], taken[id] = id, true
		} else {
			sets[num] = model.SetID("@unnamed-" + strconv.Itoa(int(num)))
		}
	}
	for _, num := range usedRules {
		if _, ok := rules[num]; !ok {
			rules[num] = "@unnamed-" + strconv.Itoa(int(num))
		}
	}
	return sets, rules
}

// placeholder stands for a rule if only its text is known. No real RuleID equals it.
func placeholder(num uint32, text string) model.RuleID {
	return model.RuleID{Tier: text, Index: int(num)}
}
