package iptables

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/nfnl"
)

// With nftables, somebody can delete a built-in chain and make another one of its name that packets enter elsewhere, or not at all.
// iptables-nft takes no notice of it, or shows two chains of one name. The agent does not delete the chain, since it may have rules of others.

// MisplacedError reports that a built-in chain with our jumps is not where iptables has it, so that our rules do not judge packets there.
type MisplacedError struct {
	Family       Family
	Table, Chain string
	What         string
}

func (e *MisplacedError) Error() string {
	return fmt.Sprintf("chain %s: %s; policy is not enforced there, remove it with `nft '%s'`, and it is made again", e.Chain, e.What, e.remedy())
}

// remedy are the commands of nft that remove the chain.
func (e *MisplacedError) remedy() string {
	family := map[Family]string{V4: "ip", V6: "ip6"}[e.Family]
	chain := strings.Join([]string{family, e.Table, e.Chain}, " ")
	return "flush chain " + chain + "; delete chain " + chain
}

// hook is where packets enter a chain.
type hook struct {
	kind     string
	number   uint32
	priority int32
}

func (h hook) String() string {
	if h.kind == "" {
		return "a regular chain, which packets do not enter"
	}
	names := []string{"prerouting", "input", "forward", "output", "postrouting"}
	name := fmt.Sprint(h.number)
	if int(h.number) < len(names) {
		name = names[h.number]
	}
	return fmt.Sprintf("of type %s, hook %s, priority %d", h.kind, name, h.priority)
}

// hookOf returns the hook of a built-in chain of iptables in the tables that have chains of ours.
func hookOf(table string, chain int) (hook, bool) {
	h := hook{"filter", uint32(chain), 0} // builtIn has the order of the hooks
	switch table {
	case "raw":
		h.priority = -300
	case "mangle":
		h.priority = -150
		if builtIn[chain] == "OUTPUT" {
			h.kind = "route"
		}
	}
	return h, table == "raw" || table == "mangle" || table == "filter"
}

// misplaced implements kernel.
func (m *machine) misplaced(family Family, table string, jumps *map[string][]string) error {
	if m.backend == Legacy || slices.Contains(m.tolerated, key(family, table)) {
		return nil
	}
	chains, err := chainsOf(family, table)
	if err != nil {
		return err
	}
	is := map[string]hook{}
	for _, chain := range chains {
		is[chain.name] = chain.hook
	}
	for i, name := range builtIn {
		want, known := hookOf(table, i)
		got, exists := is[name]
		used := jumps == nil || len((*jumps)[name]) > 0
		if known && exists && used && got != want {
			return &MisplacedError{family, table, name, fmt.Sprintf("it is %v; that of iptables is %v", got, want)}
		}
	}
	return nil
}

// hookIn reads the hook of a chain.
func hookIn(chain []byte) hook {
	at := nfnl.Find(chain, unix.NFTA_CHAIN_HOOK)
	if at == nil {
		return hook{}
	}
	return hook{nfnl.String(nfnl.Find(chain, unix.NFTA_CHAIN_TYPE)), number(at, unix.NFTA_HOOK_HOOKNUM), int32(number(at, unix.NFTA_HOOK_PRIORITY))}
}
