package chains_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/compile/chains"
)

// Most packets are of TCP connections that policy has allowed. The rule by which they pass comes before those that no packet of TCP matches,
// since each rule costs each packet; but after the one that judges stray packets alone, which may be of TCP.
func TestAllowedTCPPassesBeforeRulesOfOtherProtocols(t *testing.T) {
	o := optionsFor(t, 4, chains.Shape{})
	source := o.Names.Source(4, 1, "cali1")
	for name, further := range map[string][]chains.Source{"no further sources": nil, "a pod has further sources": {source}} {
		t.Run(name, func(t *testing.T) {
			static := must(chains.NewStatic(&chains.Config{Marks: o.Marks, Names: o.Names, Family: 4, Interfaces: "cali",
				Generation: chains.FirstGeneration, Further: chains.Further{Sources: further}}))(t)
			at := func(mark string) int {
				for _, c := range static.Mangle {
					if c.Name == o.Names.Chain("FORWARD") {
						return slices.IndexFunc(c.Rules, func(r string) bool { return strings.Contains(r, mark) })
					}
				}
				return -1
			}
			stale, lone := at("-o cali+"), at("-g "+o.Names.Chain("lone"))
			allowed, tunnels := at("-p tcp -m conntrack ! --ctstate RELATED"), at("-j "+o.Names.Chain("encap"))
			if stale < 0 || allowed < stale || tunnels < 0 {
				t.Fatalf("rules for stale addresses, allowed TCP and tunnels are at %d, %d and %d", stale, allowed, tunnels)
			}
			if further == nil && (allowed > tunnels || lone >= 0) {
				t.Errorf("allowed TCP passes at %d, after tunnels at %d; stray packets are judged at %d", allowed, tunnels, lone)
			}
			if further != nil && (lone < 0 || allowed < lone) {
				t.Errorf("allowed TCP passes at %d, before stray packets are judged at %d", allowed, lone)
			}
		})
	}
}
