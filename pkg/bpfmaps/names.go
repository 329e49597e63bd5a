package bpfmaps

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// RuleName is the API rule behind a number in rule_stats, as it is in the map now; not ok: there is none.
func (m *Maps) RuleName(n uint32) (text string, ok bool, err error) {
	return m.name(bpf.MargayMapRuleNames, n)
}

// SetName is the agent's id of the set behind a number in rules, as it is in the map now; not ok: there is none.
func (m *Maps) SetName(n uint32) (text string, ok bool, err error) {
	return m.name(bpf.MargayMapSetNames, n)
}

// EndpointName is the endpoint, namespace/name, of an interface, as it is in the map now; not ok: there is none.
func (m *Maps) EndpointName(ifindex uint32) (text string, ok bool, err error) {
	return m.name(bpf.MargayMapEndpointNames, ifindex)
}

func (m *Maps) name(table string, n uint32) (text string, ok bool, err error) {
	var name bpf.Name
	err = m.maps[table].Lookup(&n, &name)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("read map %s key %d: %w", table, n, err)
	}
	return NameText(name), true, nil
}
