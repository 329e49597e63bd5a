package agent_test

import (
	"net/netip"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/ruleset"
)

// rulesDamage is what somebody may do to tables and sets.
type rulesDamage struct {
	name string
	do   func(t *testing.T, k *meddler)
	says string // is in a reported difference
}

// meddler changes tables and sets of this process's network namespace.
type meddler struct {
	v       *chained
	backend iptables.Backend
	world   string // "mgyA"
}

// saved is a table as it is now.
func (k *meddler) saved(t *testing.T, command, table string) *ruleset.Saved {
	t.Helper()
	out, err := exec.Command(command+"-"+string(k.backend)+"-save", "-t", table).Output()
	if err != nil {
		t.Fatal(err)
	}
	tables, err := ruleset.Parse(string(out))
	if err != nil || len(tables) != 1 {
		t.Fatalf("%d tables: %v", len(tables), err)
	}
	return &tables[0]
}

// restore carries out lines of iptables-restore in one table. W stands for the world.
func (k *meddler) restore(t *testing.T, command, table string, lines ...string) {
	t.Helper()
	text := "*" + table + "\n" + strings.Join(lines, "\n") + "\nCOMMIT\n"
	text = strings.ReplaceAll(text, "W-", k.world+"-")
	cmd := exec.Command(command+"-"+string(k.backend)+"-restore", "-w", "5", "--noflush")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\n%s", err, out, text)
	}
}

// find is the first rule of a chain, whose name begins with one of our names, that matches a pattern: its chain and place, from 1.
func (k *meddler) find(t *testing.T, chain, pattern string) (name string, place int, text string) {
	t.Helper()
	for _, c := range k.saved(t, "iptables", "mangle").Chains {
		if !strings.HasPrefix(c.Name, k.world+"-"+chain) {
			continue
		}
		for i, r := range c.Rules {
			if regexp.MustCompile(pattern).MatchString(r.Text) {
				return c.Name, i + 1, r.Text
			}
		}
	}
	t.Fatalf("no rule of %s matches %s", chain, pattern)
	return "", 0, ""
}

// mangle carries out lines in table mangle of IPv4.
func mangle(lines ...string) func(*testing.T, *meddler) {
	return func(t *testing.T, k *meddler) { k.restore(t, "iptables", "mangle", lines...) }
}

// edit replaces a part of the first rule of a chain that matches; with is what takes its place.
func edit(chain, pattern, with string) func(*testing.T, *meddler) {
	return func(t *testing.T, k *meddler) {
		name, place, text := k.find(t, chain, pattern)
		k.restore(t, "iptables", "mangle", "-R "+name+" "+strconv.Itoa(place)+" "+regexp.MustCompile(pattern).ReplaceAllString(text, with))
	}
}

// cut deletes the first rule of a chain that matches.
func cut(chain, pattern string) func(*testing.T, *meddler) {
	return func(t *testing.T, k *meddler) {
		name, place, _ := k.find(t, chain, pattern)
		k.restore(t, "iptables", "mangle", "-D "+name+" "+strconv.Itoa(place))
	}
}

// insert puts a rule before the first one of a chain that matches.
func insert(chain, pattern, rule string) func(*testing.T, *meddler) {
	return func(t *testing.T, k *meddler) {
		name, place, _ := k.find(t, chain, pattern)
		k.restore(t, "iptables", "mangle", "-I "+name+" "+strconv.Itoa(place)+" "+rule)
	}
}

// first makes the last rule of a chain its first one.
func first(chain string) func(*testing.T, *meddler) {
	return func(t *testing.T, k *meddler) {
		name := k.world + "-" + chain
		rules := k.saved(t, "iptables", "mangle").Chain(name).Rules
		last := len(rules)
		k.restore(t, "iptables", "mangle", "-D "+name+" "+strconv.Itoa(last), "-I "+name+" 1 "+rules[last-1].Text)
	}
}

// entry changes an entry of a set: what is the last part of its name, addr a prefix, iface an interface or empty. change returns false
// to remove it.
func entry(what, addr, iface string, change func(*ipsets.Entry) bool) func(*testing.T, *meddler) {
	return func(t *testing.T, k *meddler) {
		p := netip.MustParsePrefix(addr)
		spec := ipsets.Spec{Name: k.world + "4-" + what, Type: ipsets.NetInterface, Family: ipsets.IPv4}
		if p.Addr().Is6() {
			spec.Name, spec.Family = k.world+"6-"+what, ipsets.IPv6
		}
		if iface == "" {
			spec.Type = ipsets.Net
		}
		e := ipsets.Entry{Key: ipsets.Key{Prefix: p, Interface: iface}}
		list, err := ipsets.ListAll(k.v.sets, spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, is := range list {
			if is.Key == e.Key {
				e = is
			}
		}
		keep := change(&e)
		if _, err := k.v.sets.Write(spec, []ipsets.Change{{Entry: e, Remove: !keep}}); err != nil {
			t.Fatal(err)
		}
	}
}

// ipset runs the command ipset. W stands for the world.
func (k *meddler) ipset(t *testing.T, command string) {
	t.Helper()
	if out, err := exec.Command("ipset", strings.Fields(strings.ReplaceAll(command, "W", k.world))...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestVerifyFindsDamagedRules: each kind of damage is found and named, with either backend, and after its repair everything is proven
// again.
func TestVerifyFindsDamagedRules(t *testing.T) {
	for _, backend := range backends {
		t.Run(string(backend), func(t *testing.T) {
			if !inNamespace(t) {
				return
			}
			testutil.RequireCommand(t, "ipset")
			began := time.Now()
			v := runRealChained(t, backend)
			v.replace(t, shop())
			proven := func(when string) {
				t.Helper()
				if r := v.verify(t); !r.Proven || r.Endpoints != 3 {
					t.Fatalf("%s: %d endpoints: %s", when, r.Endpoints, textOf(r))
				}
			}
			proven("at first")
			k := &meddler{v: v, backend: backend, world: "mgyA"}
			for _, d := range rulesDamages {
				d.do(t, k)
				r := v.verify(t)
				if text := textOf(r); r.Proven || !saysSo(r, d.says) {
					t.Errorf("%s: does not say %q:\n%s", d.name, d.says, text)
				}
				v.resync(t)
				proven("after " + d.name)
			}
			t.Logf("%d kinds of damage in %v", len(rulesDamages), time.Since(began))
		})
	}
}

func saysSo(r *inspect.Verification, text string) bool {
	for _, d := range r.Differences {
		if strings.Contains(d.Text, text) {
			return true
		}
	}
	return false
}
