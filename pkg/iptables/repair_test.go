package iptables_test

import (
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

// What somebody may do to our rules by hand, and the chain in which it is found.
var damages = []struct {
	name  string
	lines []string
	found []string
}{
	{"a chain is emptied", []string{"-F mgyA-judge"}, []string{"mgyA-judge"}},
	{"all chains are emptied and deleted", []string{"-F FORWARD", "-F mgyA-FORWARD", "-F mgyA-judge", "-F mgyA-ok", "-F mgyA-seal",
		"-X mgyA-FORWARD", "-X mgyA-judge", "-X mgyA-ok", "-X mgyA-seal"}, []string{"FORWARD", "mgyA-FORWARD", "mgyA-judge", "mgyA-ok", "mgyA-seal"}},
	{"the jump is deleted", []string{"-D FORWARD -j mgyA-FORWARD"}, []string{"FORWARD"}},
	{"a rule is put before the jump", []string{"-I FORWARD 1 -p udp -j ACCEPT"}, []string{"FORWARD"}},
	{"the jump is moved to the end", []string{"-A FORWARD -p udp -j ACCEPT", "-D FORWARD -j mgyA-FORWARD", "-A FORWARD -j mgyA-FORWARD"}, []string{"FORWARD"}},
	{"the jump is doubled", []string{"-A FORWARD -j mgyA-FORWARD"}, []string{"FORWARD"}},
	{"the jump has a condition", []string{"-I FORWARD 1 -p tcp -j mgyA-FORWARD", "-D FORWARD -j mgyA-FORWARD"}, []string{"FORWARD"}},
	{"another built-in chain jumps to ours", []string{"-A OUTPUT -j mgyA-ok"}, []string{"OUTPUT"}},
	{"a rule is deleted", []string{"-D mgyA-judge -p 4 -j DROP"}, []string{"mgyA-judge"}},
	{"a rule is inserted", []string{"-I mgyA-judge 1 -j ACCEPT"}, []string{"mgyA-judge"}},
	{"a rule is appended", []string{"-A mgyA-ok -j ACCEPT"}, []string{"mgyA-ok"}},
	{"a rule has another verdict of the same size", []string{"-D mgyA-judge -p 4 -j DROP", "-I mgyA-judge 3 -p 4 -j ACCEPT"}, []string{"mgyA-judge"}},
	{"a port is another one", []string{"-D mgyA-FORWARD -p tcp -m tcp --dport 80:90 -g mgyA-ok", "-A mgyA-FORWARD -p tcp -m tcp --dport 80:91 -g mgyA-ok"}, []string{"mgyA-FORWARD"}},
	{"a goto becomes a jump", []string{"-D mgyA-FORWARD -p tcp -m tcp --dport 80:90 -g mgyA-ok", "-A mgyA-FORWARD -p tcp -m tcp --dport 80:90 -j mgyA-ok"}, []string{"mgyA-FORWARD"}},
	{"a negation is lost", []string{"-D mgyA-judge -p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -m conntrack --ctdir REPLY -j mgyA-ok",
		"-I mgyA-judge 2 -p tcp -m tcp --syn -m conntrack --ctdir REPLY -j mgyA-ok"}, []string{"mgyA-judge"}},
	{"a mask is another one", []string{"-D mgyA-ok -j MARK --set-xmark 0x20000/0x20000", "-I mgyA-ok 1 -j MARK --set-xmark 0x20000/0x30000"}, []string{"mgyA-ok"}},
	{"two rules change places", []string{"-D mgyA-judge -p 4 -j DROP", "-I mgyA-judge 1 -p 4 -j DROP"}, []string{"mgyA-judge"}},
	{"a chain is added", []string{":mgyA-mine - [0:0]", "-A mgyA-mine -j ACCEPT"}, []string{"mgyA-mine"}},
	{"a chain of another world is added and used", []string{":mgyB-mine - [0:0]", "-A mgyB-mine -j ACCEPT", "-I FORWARD -j mgyB-mine"}, []string{"FORWARD", "mgyB-mine"}},
	{"the seal is altered", []string{"-F mgyA-seal"}, []string{"mgyA-seal"}},
}

func TestEveryDamageIsFoundAndRepairedInOneCommit(t *testing.T) {
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			kernels(t, func(t *testing.T, k kernel) {
				table := example(t, k)
				before := own(t, table)
				if findings, err := table.Check(t.Context()); len(findings) > 0 || err != nil {
					t.Fatalf("Check before anything happened: %v, %v", findings, err)
				}
				k.load(t, "mangle", d.lines...)
				waitTouched(t, table)
				sealed := seal(t, table)
				if sealed == nil && d.found[0] != "OUTPUT" && !strings.HasPrefix(d.found[len(d.found)-1], "mgyB") {
					t.Error("the seal of the world is whole")
				}
				findings, err := table.Check(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				var chains []string
				for _, f := range findings {
					chains = append(chains, f.Chain)
				}
				if slices.Sort(chains); !slices.Equal(chains, d.found) {
					t.Errorf("found %v, want the chains %v", findings, d.found)
				}
				apply(t, table)
				if after := own(t, table); !slices.Equal(after, before) {
					t.Errorf("after the repair:\n%s\nbefore the damage:\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
				}
				if err := seal(t, table); err != nil {
					t.Errorf("after the repair: %v", err)
				}
				if findings, err := table.Check(t.Context()); len(findings) > 0 || err != nil {
					t.Errorf("Check after the repair: %v, %v", findings, err)
				}
				if touched, err := table.Touched(); touched || err != nil {
					t.Errorf("Touched after the repair: %v, %v", touched, err)
				}
			})
		})
	}
}

// waitTouched waits until the table is known to have been written by others, which takes a hundred times as long as reading it.
func waitTouched(t *testing.T, table *iptables.Table) {
	t.Helper()
	testutil.WaitFor(t, time.Minute, "Touched", func() bool {
		touched, err := table.Touched()
		if err != nil {
			t.Fatal(err)
		}
		return touched
	})
}

// What happens between our transaction and the first Check after it is found, too.
func TestDamageRightAfterATransactionIsFound(t *testing.T) {
	kernels(t, func(t *testing.T, k kernel) {
		table := example(t, k)
		k.load(t, "mangle", "-D mgyA-ok -j MARK --set-xmark 0x20000/0x20000", "-I mgyA-ok 1 -j MARK --set-xmark 0x20000/0x30000")
		waitTouched(t, table)
		if findings, err := table.Check(t.Context()); len(findings) != 1 || err != nil {
			t.Errorf("Check: %v, %v", findings, err)
		}
	})
}

// What others do in tables of their own is no reason to read ours.
func TestTransactionsInOtherTablesDoNotTouchOurs(t *testing.T) {
	kernels(t, func(t *testing.T, k kernel) {
		table := example(t, k)
		if findings, err := table.Check(t.Context()); len(findings) > 0 || err != nil {
			t.Fatalf("%v, %v", findings, err)
		}
		for i := range 5 {
			k.load(t, "raw", fmt.Sprintf(":other%d - [0:0]", i), fmt.Sprintf("-A PREROUTING -j other%d", i))
			time.Sleep(time.Millisecond) // Touched reads the bytes of legacy tables from time to time only
			if touched, err := table.Touched(); touched || err != nil {
				t.Errorf("Touched: %v, %v", touched, err)
			}
		}
		k.load(t, "mangle", ":other - [0:0]")
		waitTouched(t, table)
		if findings, err := table.Check(t.Context()); len(findings) > 0 || err != nil {
			t.Errorf("a chain of others is a finding: %v, %v", findings, err)
		}
	})
}

// own are all rules of our chains, and those of built-in chains up to the last that goes to ours.
func own(t *testing.T, table *iptables.Table) (lines []string) {
	t.Helper()
	saved, err := table.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, chain := range saved.Chains {
		if !chain.BuiltIn() && !strings.HasPrefix(chain.Name, prefix) {
			continue
		}
		var rules []string
		ours := 0
		for _, rule := range chain.Rules {
			rules = append(rules, chain.Name+" "+rule.Text)
			if target, _ := ruleset.Target(rule.Text); strings.HasPrefix(target, prefix) {
				ours = len(rules)
			}
		}
		if chain.BuiltIn() {
			rules = rules[:ours]
		}
		lines = append(lines, rules...)
	}
	slices.Sort(lines)
	return lines
}

func seal(t *testing.T, table *iptables.Table) error {
	t.Helper()
	saved, err := table.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return saved.VerifySeal("mgyA")
}

func TestAFlushedRulesetIsRepaired(t *testing.T) {
	testutil.Privileged(t)
	testutil.RequireCommand(t, "nft")
	tools, err := iptables.Find(t.Context(), iptables.NFT)
	if err != nil {
		testutil.Missing(t, err.Error())
	}
	testutil.NetNS(t).Enter(t)
	table := example(t, kernel{tools: tools, family: iptables.V4})
	before := own(t, table)
	if out, err := exec.Command("nft", "flush", "ruleset").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	waitTouched(t, table)
	if findings, err := table.Check(t.Context()); len(findings) != 5 || err != nil {
		t.Errorf("Check: %v, %v", findings, err)
	}
	apply(t, table)
	if after := own(t, table); !slices.Equal(after, before) {
		t.Errorf("after the repair: %q, before: %q", after, before)
	}
}

func TestARestoredRulesetIsRepaired(t *testing.T) {
	realKernels(t, func(t *testing.T, k kernel) {
		old, err := exec.Command(k.command("-save"), "-t", "mangle").Output()
		if err != nil {
			t.Fatal(err)
		}
		table := example(t, k)
		before := own(t, table)
		cmd := exec.Command(k.command("-restore"), "-w")
		cmd.Stdin = strings.NewReader(string(old))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if findings, err := table.Check(t.Context()); len(findings) != 5 || err != nil {
			t.Errorf("Check: %v, %v", findings, err)
		}
		if commit := apply(t, table); commit.Chains != 4 || commit.Jumps != 1 {
			t.Errorf("the repair: %+v", commit)
		}
		if after := own(t, table); !slices.Equal(after, before) {
			t.Errorf("after the repair: %q, before: %q", after, before)
		}
	})
}

func TestChainsOfOthersStay(t *testing.T) {
	kernels(t, func(t *testing.T, k kernel) {
		foreign := []string{":KUBE-CANARY - [0:0]", ":cali-x - [0:0]", "-A cali-x -p tcp -m tcp --dport 9 -j KUBE-CANARY", "-A FORWARD -j cali-x", "-A FORWARD -p udp -j DROP"}
		k.load(t, "mangle", foreign...)
		table := example(t, k)
		check := func(when string) {
			t.Helper()
			if got, want := rules(t, table, "cali-x"), canonical("-p tcp --dport 9 -j KUBE-CANARY"); !slices.Equal(got, want) {
				t.Errorf("%s, the chain of others has %q", when, got)
			}
			got := rules(t, table, "FORWARD")
			if want := canonical("-j cali-x", "-p udp -j DROP"); len(got) < 2 || !slices.Equal(got[len(got)-2:], want) {
				t.Errorf("%s, FORWARD has %q", when, got)
			}
			if rules(t, table, "KUBE-CANARY") == nil {
				t.Errorf("%s, the empty chain of others is gone", when)
			}
		}
		check("after our first commit")
		jumps(t, table, "FORWARD")
		for _, name := range []string{"mgyA-FORWARD", "mgyA-judge", "mgyA-ok"} {
			table.Remove(name)
		}
		if commit := apply(t, table); commit.Removed != 4 || commit.Jumps != 1 {
			t.Errorf("removing everything: %+v", commit)
		}
		check("after we have gone")
		if left := own(t, table); len(left) > 0 {
			t.Errorf("of ours is left: %q", left)
		}
	})
}

// A chain that others go to cannot be deleted, and must not keep everything else from being written.
func TestAChainThatOthersUseIsEmptied(t *testing.T) {
	kernels(t, func(t *testing.T, k kernel) {
		table, judge := example(t, k), ruleset.Chain{Name: "mgyA-judge", Rules: []string{"-p udp -j DROP"}}
		set(t, table, judge)
		apply(t, table)
		k.load(t, "mangle", ":theirs - [0:0]", "-A theirs -j mgyA-judge")
		set(t, table, ruleset.Chain{Name: "mgyA-FORWARD", Rules: []string{"-j DROP"}})
		table.Remove("mgyA-judge")
		commit := apply(t, table)
		if got := rules(t, table, "mgyA-judge"); got == nil || len(got) > 0 {
			t.Errorf("after %+v the chain has %q, want an empty one", commit, got)
		}
		if got, want := rules(t, table, "mgyA-FORWARD"), canonical("-j DROP"); !slices.Equal(got, want) {
			t.Errorf("the other chain has %q", got)
		}
		if commit := apply(t, table); commit.Bytes > 0 {
			t.Errorf("written again: %+v", commit)
		}
		set(t, table, ruleset.Chain{Name: "mgyA-judge"}) // as it is
		if commit := apply(t, table); commit.Chains != 1 || commit.Rules != 1 {
			t.Errorf("the emptied chain is to be empty, and Apply wrote %+v: want the seal only", commit)
		}
		set(t, table, judge) // as it was before
		apply(t, table)
		if got, want := rules(t, table, "mgyA-judge"), canonical(slices.Clone(judge.Rules)...); !slices.Equal(got, want) {
			t.Errorf("wanted again, the chain has %q, want %q", got, want)
		}
		table.Remove("mgyA-judge")
		apply(t, table)
		k.load(t, "mangle", "-F theirs")
		if _, err := table.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		apply(t, table)
		if got := rules(t, table, "mgyA-judge"); got != nil {
			t.Errorf("nothing uses the chain any more, and it is there: %q", got)
		}
	})
}

// A new agent builds its world beside the old one, moves the jump, and deletes the old one; at no time is there none.
func TestOneWorldReplacesAnother(t *testing.T) {
	kernels(t, func(t *testing.T, k kernel) {
		before := own(t, example(t, k))
		table := k.table("mangle")
		table.Keep("mgyA")
		set(t, table, ruleset.Chain{Name: "mgyB-FORWARD", Rules: []string{"-j DROP"}})
		if commit := apply(t, table); commit.Chains != 2 || commit.Jumps != 0 {
			t.Errorf("the second world: %+v", commit)
		}
		if seal(t, table) != nil {
			t.Errorf("the first world was altered: %v, before: %q", seal(t, table), before)
		}
		jumps(t, table, "FORWARD", "-j mgyB-FORWARD")
		if commit := apply(t, table); commit.Jumps != 1 || commit.Removed != 0 {
			t.Errorf("the move: %+v", commit)
		}
		table.Keep()
		if commit := apply(t, table); commit.Removed != 4 || commit.Chains != 0 {
			t.Errorf("the end of the first world: %+v", commit)
		}
		if got, want := own(t, table)[0], "FORWARD -j mgyB-FORWARD"; got != want {
			t.Errorf("the jump is %q, want %q", got, want)
		}
	})
}

// Transactions of others into other tables, in the same moment as ours, are no reason to read ours again: of nftables each is known by
// the table that it writes into.
func TestTransactionsOfOthersBesideOursAreDistinguished(t *testing.T) {
	testutil.Privileged(t)
	tools, err := iptables.Find(t.Context(), iptables.NFT)
	if err != nil {
		testutil.Missing(t, err.Error())
	}
	ns := testutil.NetNS(t)
	ns.Enter(t)
	k := kernel{tools: tools, family: iptables.V4}
	table := example(t, k)
	for i := range 10 {
		other := exec.Command(k.command("-restore"), "--noflush")
		other.Stdin = strings.NewReader(strings.Repeat(fmt.Sprintf("*raw\n:other%d - [0:0]\n-A other%d -j RETURN\nCOMMIT\n", i, i), 20))
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		set(t, table, ruleset.Chain{Name: "mgyA-ok", Rules: []string{fmt.Sprintf("-p tcp --dport %d -j DROP", 100+i)}})
		apply(t, table)
		if touched, err := table.Touched(); touched || err != nil {
			t.Errorf("Touched: %v, %v", touched, err)
		}
		if err := other.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	k.load(t, "mangle", "-F mgyA-ok")
	if touched, err := table.Touched(); !touched || err != nil {
		t.Errorf("Touched after a chain of ours was emptied: %v, %v", touched, err)
	}
}
