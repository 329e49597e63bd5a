package iptables_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/ruleset"
)

// cpu is the CPU time of this process and of the commands that it has started and waited for.
func cpu(t testing.TB) (sum time.Duration) {
	t.Helper()
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}

// large is a world of so many chains with four rules each, of the size that a node with many policies has.
func large(t testing.TB, k kernel, chains int) *iptables.Table {
	t.Helper()
	table := k.table("mangle")
	for i := range chains {
		var rules []string
		for port := range 3 {
			rules = append(rules, fmt.Sprintf("-p tcp -m tcp --dport %d -g mgyA-ok", 8000+port))
		}
		if err := table.Set(ruleset.Chain{Name: fmt.Sprintf("mgyA-i%d", i), Rules: append(rules, "-j DROP")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.Set(ruleset.Chain{Name: "mgyA-ok"}); err != nil {
		t.Fatal(err)
	}
	return table
}

// BenchmarkLargeTable measures CPU time of what is done with a table of 10,000 chains and 40,000 rules.
func BenchmarkLargeTable(b *testing.B) {
	testutil.Privileged(b)
	for _, backend := range []iptables.Backend{iptables.Legacy, iptables.NFT} {
		tools, err := iptables.Find(b.Context(), backend)
		if err != nil {
			b.Skip(err)
		}
		testutil.NetNS(b).Do(b, func() {
			k := kernel{tools: tools, family: iptables.V4}
			start := cpu(b)
			table := large(b, k, 10_000)
			b.Logf("%s: desired after %v", backend, cpu(b)-start)
			for _, step := range []struct {
				name string
				do   func(i int) error
			}{
				{"all", func(int) error { _, err := table.Apply(b.Context()); return err }},
				{"one chain", func(i int) error {
					if err := table.Set(ruleset.Chain{Name: "mgyA-i5", Rules: []string{fmt.Sprintf("-p tcp -m tcp --dport %d -g mgyA-ok", i+1)}}); err != nil {
						return err
					}
					_, err := table.Apply(b.Context())
					return err
				}},
				{"Touched", func(int) error { _, err := table.Touched(); return err }},
				{"first Check", func(int) error { _, err := table.Check(b.Context()); return err }},
				{"Check", func(int) error { _, err := table.Check(b.Context()); return err }},
			} {
				const times = 3
				n := times
				if step.name == "all" || step.name == "first Check" {
					n = 1
				}
				start := cpu(b)
				for i := range n {
					if err := step.do(i); err != nil {
						b.Fatal(err)
					}
				}
				b.Logf("%s: %s: %v of CPU", backend, step.name, (cpu(b)-start)/time.Duration(n))
			}
		})
	}
}
