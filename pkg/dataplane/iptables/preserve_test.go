package iptables

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/iptables"
)

// saved are all tables as iptables-save prints them.
func (n *fakeNode) saved() string {
	var b strings.Builder
	for _, family := range families {
		for _, name := range tableNames {
			b.WriteString(n.tables.Save(iptables.Family(family), name))
		}
	}
	return b.String()
}

// flushAll empties all chains of mangle and filter.
func (n *fakeNode) flushAll(t *testing.T) {
	t.Helper()
	for _, family := range families {
		for _, name := range tableNames {
			text := "*" + name + "\n"
			for line := range strings.Lines(n.tables.Save(iptables.Family(family), name)) {
				if chain, _, ok := strings.Cut(strings.TrimPrefix(line, ":"), " "); ok && line[0] == ':' {
					text += "-F " + chain + "\n"
				}
			}
			if err := n.tables.Load(iptables.Family(family), text+"COMMIT\n"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func mustSweep(t *testing.T, n *fakeNode) {
	t.Helper()
	if _, err := n.Sweep(); err != nil {
		t.Fatal(err)
	}
}

// While an agent has nothing to enforce yet, it keeps what is in force: after a start without a datastore, after a Reopen, while it makes its
// world. Then its own is in force as ever.
func TestAnAgentWithoutASnapshotKeepsWhatIsInForce(t *testing.T) {
	damages := map[string]func(t *testing.T, n *fakeNode){
		"everything is flushed": func(t *testing.T, n *fakeNode) { n.flushAll(t) },
		"a rule before the jump accepts": func(t *testing.T, n *fakeNode) {
			if err := n.tables.Load(iptables.V4, "*mangle\n-I FORWARD 1 -j ACCEPT\nCOMMIT\n"); err != nil {
				t.Fatal(err)
			}
		},
		"our chain that denies accepts": func(t *testing.T, n *fakeNode) {
			if err := n.tables.Load(iptables.V6, "*mangle\n-I mgyA-deny 1 -j ACCEPT\nCOMMIT\n"); err != nil {
				t.Fatal(err)
			}
		},
	}
	begun := map[string]func(t *testing.T, n *fakeNode){
		"a start":                            func(t *testing.T, n *fakeNode) { n.open(t) },
		"a start, and a look since":          func(t *testing.T, n *fakeNode) { n.open(t); mustSweep(t, n) },
		"a start, and its world is made":     func(t *testing.T, n *fakeNode) { n.open(t); mustBegin(t, n) },
		"a look, and then its world is made": func(t *testing.T, n *fakeNode) { n.open(t); mustSweep(t, n); mustBegin(t, n) },
		"a reopening": func(t *testing.T, n *fakeNode) {
			if err := n.Reopen(); err != nil {
				t.Fatal(err)
			}
			n.state.world.unseen.waiting = nil // nothing is in a former chain yet
		},
	}
	for when, begin := range begun {
		for what, damage := range damages {
			t.Run(when+", "+what, func(t *testing.T) {
				n := newFakeNode(t)
				n.mustApply(t, narrow.updates()...)
				begin(t, n)
				var logged bytes.Buffer
				n.log = slog.New(slog.NewTextHandler(&logged, nil))
				want := jumpsAndChains(n.saved())
				damage(t, n)
				mustSweep(t, n)
				if got := jumpsAndChains(n.saved()); got != want {
					t.Errorf("after a look there are\n%s\nwant\n%s", got, want)
				}
				if strings.Count(logged.String(), "changed by somebody else, repaired") == 0 || n.Stats(false).Repairs == 0 {
					t.Errorf("%d repairs are counted, and logged is %s", n.Stats(false).Repairs, &logged)
				}
				transactions := len(n.tables.Transactions())
				mustSweep(t, n)
				mustSweep(t, n)
				if more := len(n.tables.Transactions()) - transactions; more > 0 {
					t.Errorf("%d transactions follow although nobody changes anything", more)
				}
			})
		}
	}
}

func mustBegin(t *testing.T, n *fakeNode) {
	t.Helper()
	if err := n.state.begin(); err != nil {
		t.Fatal(err)
	}
}

// jumpsAndChains are the lines about world A: its chains, their rules and the jumps to it, as they are ordered.
func jumpsAndChains(saved string) string {
	var b strings.Builder
	for line := range strings.Lines(saved) {
		if strings.Contains(line, "mgyA-") || strings.HasPrefix(line, "*") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// Nothing is repaired in what this agent has replaced.
func TestAWorldThatWasReplacedIsNotWrittenBack(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	n.open(t)
	mustSweep(t, n)
	n.mustApply(t, narrow.updates()...)
	mustSweep(t, n)
	n.mustApply(t)
	if left := jumpsAndChains(n.saved()); strings.Contains(left, "mgyA") {
		t.Errorf("of the world before there are\n%s", left)
	}
}

// If the sets have gone with the chains, these are written with sets that have no entries: nothing is a pod's address.
func TestChainsWhoseSetsHaveGoneAreWrittenWithEmptyOnes(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	n.open(t)
	mustSweep(t, n)
	want := jumpsAndChains(n.saved())
	n.flushAll(t)
	for _, name := range []string{"mgyA4-own", "mgyA4-eg"} {
		if err := n.sets.Destroy(name); err != nil {
			t.Fatal(err)
		}
	}
	refused := &iptables.RefusedError{Command: "iptables-restore", Message: "Set mgyA4-own doesn't exist."}
	n.tables.Fail(refused, refused) // Apply repeats a transaction once
	mustSweep(t, n)
	if got := jumpsAndChains(n.saved()); got != want {
		t.Errorf("there are\n%s\nwant\n%s", got, want)
	}
	for _, name := range []string{"mgyA4-own", "mgyA4-eg"} {
		if h, err := n.sets.Header(name); err != nil || h.Entries != 0 {
			t.Errorf("set %s has %d entries, %v", name, h.Entries, err)
		}
	}
}
