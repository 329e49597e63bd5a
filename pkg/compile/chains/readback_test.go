package chains_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/ruleset"
)

// Rules that are read back must be found to be those that were written, or an agent repairs what nobody has altered.
func TestChainsAreReadBackAsTheyWereWritten(t *testing.T) {
	for _, b := range backends {
		t.Run(b.command(""), func(t *testing.T) {
			n := newNode(t, b)
			n.classifyRemotes()
			all := book{}
			for _, p := range drawn(6, 1, 5) {
				for name, c := range rendered(t, p, n.o) {
					all[name] = c
				}
			}
			if total(all) < 50 {
				t.Fatalf("%d rules are too few", total(all))
			}
			n.load(all, nil)
			compare(t, all, run(t, "", b.command("-save"), "-t", "mangle"))
			isPrintedInFull(t, b)
			config := chains.Config{Marks: n.o.Marks, Names: n.o.Names, Family: b.family, Interfaces: "cali", Generation: 77,
				Tunnels: []uint16{4789, 8472}, Resets: chains.Resets{Group: 3}, Events: chains.Events{Group: 4, Rate: 1000}, Masquerade: chains.Masquerade{Mark: 0x4000, Addrs: nodeAddrs(b.family)}, Kernel: chains.KernelTraits{SCTPUntracked: true, SourceRoutes: true}, MidFlow: chains.MidFlowAnswer}
			sets := n.o.Names.Sets(b.family)
			for _, name := range []string{sets.Own, sets.Egress, sets.Ingress} {
				run(t, "", "ipset", "create", name, "hash:net,iface", "family", map[uint8]string{4: "inet", 6: "inet6"}[b.family], "skbinfo")
			}
			config.Further.Sources = []chains.Source{n.o.Names.Source(b.family, 1, "cali1"), n.o.Names.Source(b.family, 2, "cali2")}
			for _, name := range []string{sets.Owned, config.Further.Sources[0].Egress, config.Further.Sources[0].Ingress, config.Further.Sources[1].Egress, config.Further.Sources[1].Ingress} {
				run(t, "", "ipset", "create", name, "hash:net", "family", map[uint8]string{4: "inet", 6: "inet6"}[b.family], "skbinfo")
			}
			static := must(chains.NewStatic(&config))(t)
			raw, mangle := book{}, book{}
			raw.set(static.Raw)
			mangle.set(static.Mangle)
			for _, d := range []chains.Direction{chains.EgressSlots, chains.IngressSlots} {
				mangle.set(chains.NewDispatch(d, n.o).Chains())
			}
			for table, all := range map[string]book{"raw": raw, "mangle": mangle} {
				run(t, restored(table, all), b.command("-restore"))
				compare(t, all, run(t, "", b.command("-save"), "-t", table))
			}
			isPrintedInFull(t, b)
		})
	}
}

// restored is the transaction that makes chains.
func restored(table string, all book) string {
	var text strings.Builder
	text.WriteString("*" + table + "\n")
	for name := range all {
		text.WriteString(":" + name + " - [0:0]\n")
	}
	for name, c := range all {
		for _, r := range c.Rules {
			text.WriteString("-A " + name + " " + r + "\n")
		}
	}
	return text.String() + "COMMIT\n"
}

// isPrintedInFull demands that no rule of ours is taken for one that iptables does not print as it is.
func isPrintedInFull(t *testing.T, b backend) {
	t.Helper()
	tools := must(iptables.Find(t.Context(), iptables.Backend(b.name)))(t)
	saved := must(tools.Table(iptables.Family(b.family), "mangle", "mgy").Read(t.Context()))(t)
	rules := 0
	for _, chain := range saved.Chains {
		for _, rule := range chain.Rules {
			if rules++; strings.Contains(rule.Text, `"iptables prints`) {
				t.Errorf("chain %s: %s", chain.Name, rule.Text)
			}
		}
	}
	if rules == 0 {
		t.Error("no rules were read")
	}
}

func nodeAddrs(family uint8) []netip.Addr {
	if family == 4 {
		return []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.7")}
	}
	return []netip.Addr{netip.MustParseAddr("2001:db8::1")}
}

func compare(t *testing.T, want book, saved string) {
	t.Helper()
	got := map[string][]string{}
	for line := range strings.Lines(saved) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "-A "); ok {
			name, rule, _ := strings.Cut(rest, " ")
			got[name] = append(got[name], rule)
		}
	}
	for name, c := range want {
		if len(got[name]) != len(c.Rules) {
			t.Errorf("chain %s has %d rules, want %d", name, len(got[name]), len(c.Rules))
			continue
		}
		for i, r := range c.Rules {
			if a, b := ruleset.Canonical(got[name][i]), ruleset.Canonical(r); a != b {
				t.Errorf("chain %s: %q was written and means %q; %q is read, which means %q", name, r, b, got[name][i], a)
			}
		}
		read := ruleset.Chain{Name: name, Rules: got[name]}
		if err := (ruleset.Chain{Name: name, Rules: c.Rules}).Check(); err != nil {
			t.Error(err)
		}
		if read.Digest() != (ruleset.Chain{Name: name, Rules: c.Rules}).Digest() {
			t.Errorf("chain %s has another digest", name)
		}
	}
}
