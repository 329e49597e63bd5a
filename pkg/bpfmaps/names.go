package bpfmaps

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// Names are what people call the numbers in the other maps. Sets and Rules are by number; Endpoints are the local
// endpoints, namespace/name, by interface.
type Names struct {
	Sets, Rules, Endpoints *Table[uint32, bpf.Name]

	maps map[string]*ebpf.Map
}

func newNames(maps map[string]*ebpf.Map) *Names {
	table := func(name string) *Table[uint32, bpf.Name] {
		return NewTable(newKernelMap[uint32, bpf.Name](maps[name], name))
	}
	return &Names{
		Sets: table(bpf.MargayMapSetNames), Rules: table(bpf.MargayMapRuleNames), Endpoints: table(bpf.MargayMapEndpointNames),
		maps: maps,
	}
}

// Rule is the API rule behind a number in rule_stats, as it is in the map now; not ok: there is none.
func (n *Names) Rule(rule uint32) (text string, ok bool, err error) {
	return n.text(bpf.MargayMapRuleNames, rule)
}

// Set is the agent's id of the set behind a number in rules, as it is in the map now; not ok: there is none.
func (n *Names) Set(set uint32) (text string, ok bool, err error) {
	return n.text(bpf.MargayMapSetNames, set)
}

// Endpoint is the endpoint, namespace/name, of an interface, as it is in the map now; not ok: there is none.
func (n *Names) Endpoint(ifindex uint32) (text string, ok bool, err error) {
	return n.text(bpf.MargayMapEndpointNames, ifindex)
}

func (n *Names) text(table string, key uint32) (text string, ok bool, err error) {
	var name bpf.Name
	err = n.maps[table].Lookup(&key, &name)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("read map %s key %d: %w", table, key, err)
	}
	return NameText(name), true, nil
}
