package iptables_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/ruleset"
)

// TestRandomChangesAndAlterations: whatever is desired and whatever others do, after Check and Apply the kernel has what is
// desired, and what is not ours is as others have it.
func TestRandomChangesAndAlterations(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := &randomWorld{fake: iptables.NewFake(), chains: map[string][]string{}}
		w.table = w.fake.Tools(iptables.Legacy).Table(iptables.V4, "mangle", prefix)
		for _, builtIn := range []string{"FORWARD", "OUTPUT"} {
			if err := w.table.SetJumps(builtIn); err != nil {
				r.Fatal(err)
			}
		}
		r.Repeat(map[string]func(*rapid.T){
			"desire": w.desire, "remove": w.remove, "jump": w.jump, "alter": w.alter, "fail": w.failure, "": func(*rapid.T) {},
			"apply": func(r *rapid.T) {
				if _, err := w.table.Check(t.Context()); err != nil {
					r.Fatal(err)
				}
				_, err := w.table.Apply(t.Context())
				if err != nil && w.failing {
					w.failing = false
					_, err = w.table.Apply(t.Context())
				}
				if err != nil {
					r.Fatal(err)
				}
				w.compare(r)
			},
		})
	})
}

type randomWorld struct {
	fake    *iptables.Fake
	table   *iptables.Table
	chains  map[string][]string // desired
	jumps   []string
	failing bool
}

// A chain goes to chains with a higher letter only, so there are no loops.
var letters = []string{"a", "b", "c", "d", "e"}

func (w *randomWorld) desire(r *rapid.T) {
	i := rapid.IntRange(0, len(letters)-1).Draw(r, "chain")
	rules := []string{}
	for range rapid.IntRange(0, 3).Draw(r, "rules") {
		rule := fmt.Sprintf("-p tcp -m tcp --dport %d -j DROP", rapid.IntRange(1, 3).Draw(r, "port"))
		if next := rapid.IntRange(i+1, len(letters)).Draw(r, "to"); next < len(letters) && w.chains["mgyA-"+letters[next]] != nil {
			rule = "-g mgyA-" + letters[next]
		}
		rules = append(rules, rule)
	}
	w.chains["mgyA-"+letters[i]] = rules
	if err := w.table.Set(ruleset.Chain{Name: "mgyA-" + letters[i], Rules: rules}); err != nil {
		r.Fatal(err)
	}
}

func (w *randomWorld) remove(r *rapid.T) {
	name := "mgyA-" + rapid.SampledFrom(letters).Draw(r, "chain")
	used := func(rule string) bool { return strings.HasSuffix(rule, " "+name) }
	if slices.ContainsFunc(w.jumps, used) {
		return
	}
	for _, rules := range w.chains {
		if slices.ContainsFunc(rules, used) {
			return
		}
	}
	delete(w.chains, name)
	w.table.Remove(name)
}

func (w *randomWorld) jump(r *rapid.T) {
	w.jumps = nil
	for name := range w.chains {
		if rapid.Bool().Draw(r, "jump") {
			w.jumps = append(w.jumps, "-i cali+ -j "+name)
		}
	}
	if err := w.table.SetJumps("FORWARD", w.jumps...); err != nil {
		r.Fatal(err)
	}
}

// alter does one thing that others may do; what is impossible is refused, as by the kernel.
func (w *randomWorld) alter(r *rapid.T) {
	name := "mgyA-" + rapid.SampledFrom(append(letters, "seal")).Draw(r, "chain")
	line := rapid.SampledFrom([]string{"-F %s", "-X %s", "-I %s 1 -j ACCEPT", "-A %s -p udp -j DROP", "-D %s -p tcp -m tcp --dport 1 -j DROP", ":%s - [0:0]",
		":mgyB-%[1]s - [0:0]", "-I FORWARD 1 -p udp -j ACCEPT", "-I FORWARD 1 -j %s", "-A OUTPUT -j %s", "-D FORWARD -i cali+ -j %s", "-F FORWARD"}).Draw(r, "line")
	if strings.Contains(line, "%") {
		line = fmt.Sprintf(line, name)
	}
	_ = w.fake.Load(iptables.V4, "*mangle\n"+line+"\nCOMMIT\n") // refused or not: both happen
}

func (w *randomWorld) failure(*rapid.T) {
	if !w.failing {
		w.fake.Fail(errors.New("killed"))
	}
	w.failing = true
}

func (w *randomWorld) compare(r *rapid.T) {
	tables, err := ruleset.Parse(w.fake.Save(iptables.V4, "mangle"))
	if err != nil {
		r.Fatal(err)
	}
	var got, want []string
	for _, chain := range tables[0].Chains {
		for i, rule := range chain.Rules {
			target, _ := ruleset.Target(rule.Text)
			if chain.BuiltIn() && !strings.HasPrefix(target, prefix) {
				continue
			}
			if chain.Name != "mgyA-seal" {
				got = append(got, fmt.Sprint(chain.Name, i, rule.Text))
			}
		}
		if !chain.BuiltIn() && chain.Name != "mgyA-seal" {
			got = append(got, chain.Name)
		}
	}
	for name, rules := range w.chains {
		want = append(want, name)
		for i, rule := range rules {
			want = append(want, fmt.Sprint(name, i, rule))
		}
	}
	for i, rule := range w.jumps {
		want = append(want, fmt.Sprint("FORWARD", i, rule))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.Fatalf("the kernel has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if err := tables[0].VerifySeal("mgyA"); err != nil && len(want) > 0 {
		r.Fatal(err)
	}
}
