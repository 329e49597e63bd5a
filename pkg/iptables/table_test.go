package iptables_test

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/ruleset"
)

const prefix = "mgy"

// kernels are those that a test runs against: the real ones, and the fake.
func kernels(t *testing.T, test func(t *testing.T, k kernel)) {
	realKernels(t, test)
	for _, backend := range []iptables.Backend{iptables.Legacy, iptables.NFT} {
		t.Run("fake-"+string(backend), func(t *testing.T) {
			fake := iptables.NewFake()
			test(t, kernel{tools: fake.Tools(backend), family: iptables.V4, fake: fake})
		})
	}
}

// realKernels are both backends for both families, each in a namespace of its own.
func realKernels(t *testing.T, test func(t *testing.T, k kernel)) {
	for _, backend := range []iptables.Backend{iptables.Legacy, iptables.NFT} {
		for _, family := range iptables.Families {
			t.Run(fmt.Sprintf("%s-%v", backend, family), func(t *testing.T) {
				testutil.Privileged(t)
				testutil.OwnTablesLock(t)
				tools, err := iptables.Find(t.Context(), backend)
				if err != nil {
					testutil.Missing(t, err.Error())
				}
				testutil.NetNS(t).Enter(t)
				test(t, kernel{tools: tools, family: family})
			})
		}
	}
}

// kernel is one of them.
type kernel struct {
	tools  *iptables.Tools
	family iptables.Family
	fake   *iptables.Fake
}

func (k kernel) table(name string) *iptables.Table { return k.tools.Table(k.family, name, prefix) }

// command is the name of one of iptables' commands for this kernel.
func (k kernel) command(verb string) string {
	name := "iptables"
	if k.family == iptables.V6 {
		name = "ip6tables"
	}
	return name + "-" + string(k.tools.Backend) + verb
}

// load does what somebody else does by hand: lines of one table.
func (k kernel) load(t *testing.T, table string, lines ...string) {
	t.Helper()
	if err := tryLoad(k, table, lines...); err != nil {
		t.Fatal(err)
	}
}

func tryLoad(k kernel, table string, lines ...string) error {
	text := "*" + table + "\n" + strings.Join(lines, "\n") + "\nCOMMIT\n"
	if k.fake != nil {
		return k.fake.Load(k.family, text)
	}
	cmd := exec.Command(k.command("-restore"), "-w", "--noflush")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s%s", cmd, err, out, text)
	}
	return nil
}

func apply(t *testing.T, table *iptables.Table) iptables.Commit {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	commit, err := table.Apply(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return commit
}

func set(t *testing.T, table *iptables.Table, chains ...ruleset.Chain) {
	t.Helper()
	for _, c := range chains {
		if err := table.Set(c); err != nil {
			t.Fatal(err)
		}
	}
}

func jumps(t *testing.T, table *iptables.Table, builtIn string, rules ...string) {
	t.Helper()
	if err := table.SetJumps(builtIn, rules...); err != nil {
		t.Fatal(err)
	}
}

// rules are those of one chain in the kernel; nil: there is no such chain.
func rules(t *testing.T, table *iptables.Table, name string) (texts []string) {
	t.Helper()
	saved, err := table.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	chain := saved.Chain(name)
	if chain == nil {
		return nil
	}
	texts = []string{}
	for _, rule := range chain.Rules {
		texts = append(texts, ruleset.Canonical(rule.Text))
	}
	return texts
}

func canonical(texts ...string) []string {
	for i, text := range texts {
		texts[i] = ruleset.Canonical(text)
	}
	return texts
}

// example is a world of three chains, with a jump from FORWARD.
func example(t *testing.T, k kernel) *iptables.Table {
	t.Helper()
	table := unwritten(t, k)
	if commit := apply(t, table); commit.Chains != 4 || commit.Jumps != 1 {
		t.Fatalf("the first commit: %+v", commit)
	}
	return table
}

// unwritten is the example before it is applied.
func unwritten(t *testing.T, k kernel) *iptables.Table {
	t.Helper()
	table := k.table("mangle")
	set(t, table,
		ruleset.Chain{Name: "mgyA-FORWARD", Rules: []string{"-i cali+ -m mark --mark 0x0/0x10000 -j mgyA-judge", "-p tcp -m tcp --dport 80:90 -g mgyA-ok"}},
		ruleset.Chain{Name: "mgyA-judge", Rules: []string{"-m conntrack --ctstate RELATED,INVALID -j DROP", "-p tcp ! --syn -m conntrack --ctdir REPLY -j mgyA-ok",
			"-p 4 -j DROP", "-m limit --limit 60/min -j NFLOG --nflog-group 7 --nflog-prefix \"a b\"", "-j RETURN"}},
		ruleset.Chain{Name: "mgyA-ok", Rules: []string{"-j MARK --set-xmark 0x20000/0x20000", "-m connmark ! --mark 0x1/0xff -j CONNMARK --set-mark 0x1/0xff"}},
	)
	jumps(t, table, "FORWARD", "-j mgyA-FORWARD")
	return table
}

func TestAppliesTheDifferenceOnly(t *testing.T) {
	kernels(t, func(t *testing.T, k kernel) {
		table := example(t, k)
		if commit := apply(t, table); commit != (iptables.Commit{Took: commit.Took}) {
			t.Errorf("nothing has changed, and Apply wrote %+v", commit)
		}
		// Of a legacy table a Check may be due already: others may have written in the same moment.
		if touched, err := table.Touched(); touched && k.tools.Backend != iptables.Legacy || err != nil {
			t.Errorf("Touched after our own commit: %v, %v", touched, err)
		}
		set(t, table, ruleset.Chain{Name: "mgyA-ok", Rules: []string{"-j MARK --set-xmark 0x30000/0x30000"}})
		if commit := apply(t, table); commit.Chains != 2 || commit.Rules != 2 || commit.Removed != 0 || commit.Jumps != 0 {
			t.Errorf("one chain has changed, with the seal two: %+v", commit)
		}
		if got, want := rules(t, table, "mgyA-ok"), canonical("-j MARK --set-xmark 0x30000/0x30000"); !slices.Equal(got, want) {
			t.Errorf("the chain has %q, want %q", got, want)
		}
		findings, err := table.Check(t.Context())
		if len(findings) > 0 || err != nil {
			t.Errorf("Check of what was written: %v, %v", findings, err)
		}
		if commit := apply(t, table); commit.Bytes > 0 {
			t.Errorf("nothing has changed, and Apply after Check wrote %+v", commit)
		}
	})
}
