package bpfmaps

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// RuleName is the API rule behind a number in rule_stats, as it is in the map now; not ok: there is none.
func (m *Maps) RuleName(n uint32) (text string, ok bool, err error) {
	var name bpf.Name
	err = m.maps[bpf.MargayMapRuleNames].Lookup(&n, &name)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("read map %s key %d: %w", bpf.MargayMapRuleNames, n, err)
	}
	return NameText(name), true, nil
}
