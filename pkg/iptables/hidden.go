package iptables

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/nfnl"
	"github.com/margay-project/margay/pkg/ruleset"
)

// hidden begins the text of a rule that iptables-nft does not print as it is. No chain of ours has such a rule, so one that has it is
// repaired.
const hidden = `-m comment --comment "iptables prints this rule without `

// hiddenRule is a rule of a chain of an agent, or one that goes to such a chain, that iptables-nft does not print as it is.
type hiddenRule struct {
	chain, target string
	place         int // among the rules of its chain; of a rule that goes to a chain of an agent, among those with that target; from 0
	what          string
}

// hidden implements kernel.
func (m *machine) hidden(family Family, table string) (list []hiddenRule, err error) {
	if m.backend == Legacy || m.unlike != "" {
		return nil, nil
	}
	var request nfnl.Encoder
	request.String(unix.NFTA_RULE_TABLE, table)
	places := map[[2]string]int{}
	again := func() { list = nil; clear(places) }
	err = dump(family, unix.NFT_MSG_GETRULE, request.Bytes(), again, func(rule []byte) {
		if nfnl.String(nfnl.Find(rule, unix.NFTA_RULE_TABLE)) != table {
			return
		}
		expressions := nfnl.Find(rule, unix.NFTA_RULE_EXPRESSIONS)
		r := hiddenRule{chain: nfnl.String(nfnl.Find(rule, unix.NFTA_RULE_CHAIN))}
		if slices.Contains(builtIn, r.chain) {
			if r.target = targetOf(expressions); r.target == "" {
				return
			}
		}
		if !strings.HasPrefix(r.chain, ownChains) && !strings.HasPrefix(r.target, ownChains) {
			return
		}
		key := [2]string{r.chain, r.target}
		r.place = places[key]
		places[key]++
		if r.what = unfaithful(family, m.older, expressions); r.what != "" {
			list = append(list, r)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list the rules of %v table %s: %w", family, table, err)
	}
	return list, nil
}

// reveal marks the rules of our chains, and those of built-in chains that go to ours, that were printed otherwise than they are. After a
// write during the reading the mark may be at another rule of the chain.
func reveal(saved *ruleset.Saved, t *Table) error {
	list, err := t.kernel.hidden(t.family, t.name)
	if err != nil {
		return err
	}
	for _, r := range list {
		chain := saved.Chain(r.chain)
		if chain == nil || !t.owns(r.chain) && !t.owns(r.target) {
			continue
		}
		var candidates []*ruleset.SavedRule
		for i := range chain.Rules {
			if target, _ := ruleset.Target(chain.Rules[i].Text); r.target == "" || target == r.target {
				candidates = append(candidates, &chain.Rules[i])
			}
		}
		switch {
		case len(candidates) == 0:
			continue
		case r.target == "":
			rule := candidates[min(r.place, len(candidates)-1)]
			rule.Text = hidden + r.what + `" ` + rule.Text
		default:
			candidates[min(r.place, len(candidates)-1)].Text = matches + " -j " + r.target
		}
	}
	return nil
}
