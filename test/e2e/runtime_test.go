package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/inspect"
)

// gate is a policy that allows the open port to what source selects, and says nothing of the closed one.
func gate(tier, selector, source string) string {
	return fmt.Sprintf(`apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: %s}
spec:
  tier: %s
  order: 10
  selector: %s
  types: [Ingress]
  ingress:
  - {action: Allow, protocol: TCP, source: {selector: %s}, destination: {ports: [80]}}
  - {action: Allow, protocol: UDP, source: {selector: %s}, destination: {ports: [80]}}
`, "gate", tier, selector, source, source)
}

func tierManifest(name string, order int, end string) string {
	return fmt.Sprintf("apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: %s}\nspec: {order: %d, defaultAction: %s}\n", name, order, end)
}

// Tiers come, go, and get other orders and default actions, a policy moves between them, and its selectors begin to match
// every pod: live and new flows that policy allows before and after never lose a packet, and what it denies never gets
// through.
func TestPolicyIsRearrangedUnderTraffic(t *testing.T) {
	const own, before, gated = "default/knp/shop/server", "front/gnp/gate", "default/gnp/gate"
	steps := []struct {
		what string
		file string
		text string // empty: the file is removed
		want []string
	}{
		{"a tier comes", "tier", tierManifest("front", 10, "Pass"), []string{own}},
		{"a policy comes in it", "gate", gate("front", "app == 'server'", "app == 'client'"), []string{before, own}},
		{"its rules begin to match every pod", "gate", gate("front", "app == 'server'", "all()"), []string{before, own}},
		{"it begins to apply to every pod", "gate", gate("front", "all()", "all()"), []string{before, own}},
		{"the tier comes after another", "tier", tierManifest("front", 2_000_000, "Pass"), []string{own, before}},
		{"its default action changes", "tier", tierManifest("front", 2_000_000, "Deny"), []string{own, before}},
		{"and it comes first again", "tier", tierManifest("front", 20, "Deny"), []string{before, own}},
		{"the policy moves to another tier", "gate", gate("default", "all()", "all()"), []string{gated, own}},
		{"and back", "gate", gate("front", "app == 'server'", "all()"), []string{before, own}},
		{"the tier goes", "tier", "", []string{own, before}},
		{"the tier comes again", "tier", tierManifest("front", 10, "Deny"), []string{before, own}},
		{"the policy goes", "gate", "", []string{own}},
	}
	forModes(t, func(t *testing.T, flags ...string) {
		c := newCluster(t, oneNode, flags...)
		client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
		c.Policy("server", onlyOpen)
		c.AwaitPolicies(server, 1, 0)
		tr := c.StartTraffic(client, server)
		for _, s := range steps {
			was := c.Row(server).Ingress
			if s.text == "" {
				c.Remove(s.file)
			} else {
				c.Write(s.file, s.text)
			}
			testutil.WaitFor(t, soon, s.what, func() bool {
				row := c.Row(server)
				if row == nil || row.Error != "" || !slices.Equal(row.Ingress.Policies, s.want) {
					return false
				}
				return s.file == "tier" || s.what == "it begins to apply to every pod" || row.Ingress.Slot != was.Slot || row.Ingress.Generation != was.Generation
			})
			tr.Some("after " + s.what)
		}
		tr.Stop()
	})
}

// A set of 100,000 networks changes 100 times a second, beside rules that refer to it: no flow loses a packet, nothing
// that is denied gets through, and the last change is in force a second later.
func TestALargeSetChangesUnderTraffic(t *testing.T) {
	const sets, each, changes = 100, 1000, 300
	c := newCluster(t, oneNode)
	client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
	c.Policy("server", onlyOpen)
	c.Write("gate", gate("default", "app == 'server'", "has(large) || app == 'client'"))
	set := func(i, version int) {
		var text strings.Builder
		fmt.Fprintf(&text, "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata: {name: set-%d, labels: {large: %q}}\nspec:\n  nets:\n", i, "yes")
		for n := range each - 1 {
			fmt.Fprintf(&text, "  - 100.%d.%d.%d\n", 64+i, n>>8, n&255)
		}
		fmt.Fprintf(&text, "  - 172.16.%d.%d\n", version>>8, version&255)
		c.Write(fmt.Sprintf("set-%d", i), text.String())
	}
	for i := range sets {
		set(i, i)
	}
	row := func() (found inspect.SetRow) {
		if a, err := c.Agent(0).Ask("sets"); err == nil {
			for _, r := range a.Sets {
				if r.Members > sets {
					found = r
				}
			}
		}
		return found
	}
	members := sets*each + len(client.Addrs())
	testutil.WaitFor(t, time.Minute, "the set to have all members", func() bool { return row().Members == members })
	c.AwaitPolicies(server, 2, 0)
	tr := c.StartTraffic(client, server)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	started := time.Now()
	for n := range changes {
		set(n%sets, sets+n)
		<-tick.C
	}
	t.Logf("%d changes in %v", changes, time.Since(started))
	set(0, 0) // the last: two networks of the set are one
	set(1, 0)
	testutil.WaitFor(t, soon, "the last change to be in force", func() bool { return row().Members == members-1 })
	tr.Some("after the changes")
	tr.Stop()
}
