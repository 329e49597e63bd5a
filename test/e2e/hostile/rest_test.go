package hostile

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

const (
	restBlocks = 2_000 // of the largest of the tenant's policies
	restFew    = 100   // of the others: such a policy is opened with the change that it is in
	restEvery  = 60 * time.Millisecond
	restFor    = 15 * time.Second
	restPods   = 3
	// restMost is how many sets the node may know by name: those of the policies in force, of those that come, and of some that
	// have gone. All that the attack names are several times as many.
	restMost = 3 * restBlocks
	// honestMost is how much the agent may work until a small change of another tenant is enforced, as a multiple of what the largest
	// policy costs it alone in the same run, so that it does not depend on the machine. While the test itself is kept from a CPU the
	// agent goes on with the tenant's policies, which counts, too.
	honestMost = 20
)

// otherBlocks is the spec of a policy about addresses that no turn before has named.
func otherBlocks(app string, turn, blocks int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "{podSelector: {matchLabels: {app: %s}}, policyTypes: [Ingress], ingress: [", app)
	for i := range blocks {
		n := turn*restBlocks + i
		fmt.Fprintf(&b, "{from: [{ipBlock: {cidr: %d.%d.%d.%d/32}}]},\n", 20+n>>24, n>>16&255, n>>8&255, n&255)
	}
	return b.String() + "]}"
}

// A tenant changes small and large policies all the time, each time to other addresses, while somebody else's small changes make the
// agent spread the work out. What the policies leave behind is cleaned up as fast as it comes: the sets that the node knows
// stay bounded, the small changes are enforced, and in the end nothing is left.
func TestWhatChangingPoliciesLeaveStaysBounded(t *testing.T) {
	testcluster.NeedsBPF(t, "it counts the entries of BPF maps")
	c := testcluster.New(t, []string{"n1"})
	c.Namespace("evil")
	n := c.Node(0)
	honest := c.Pod(n, "a")
	var evil []*lab.Pod
	for i := range restPods {
		evil = append(evil, c.Pod(n, fmt.Sprint("evil/m", i)))
	}
	alone := c.Agent(0).CPUTime()
	c.Policy("evil/m0", otherBlocks("m0", 0, restBlocks))
	c.AwaitPolicies(evil[0], 1, 0)
	alone = max(c.Agent(0).CPUTime()-alone, 20*time.Millisecond) // it comes in steps of 10 ms
	names := c.Agent(0).Maps().Names.Sets
	known := func() int {
		all, err := names.Load()
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	ctx, stop := context.WithTimeout(context.Background(), restFor)
	defer stop()
	var attack sync.WaitGroup
	turns := 1 // the first was alone
	attack.Go(func() {
		for tick := time.Tick(restEvery); ctx.Err() == nil; <-tick {
			i, blocks := turns%restPods, restFew
			if turns%(20*restPods) == 1 {
				blocks = restBlocks
			}
			c.Policy(fmt.Sprint("evil/m", i), otherBlocks(fmt.Sprint("m", i), turns, blocks))
			turns++
		}
	})
	most, took, worked, had := 0, []time.Duration(nil), time.Duration(0), -1
	for rules := 1; ctx.Err() == nil; rules = 3 - rules {
		start, before := time.Now(), c.Agent(0).CPUTime()
		c.Policy("a", `{podSelector: {matchLabels: {app: a}}, ingress: [`+strings.Repeat(`{ports: [{port: 80}]},`, rules-1)+`{ports: [{port: 443}]}]}`)
		testutil.WaitFor(t, soon, "a small change of somebody else", func() bool {
			most = max(most, known())
			row := c.Row(honest)
			if row == nil || row.Error != "" || len(row.Ingress.Policies) != 1 || row.Ingress.Rules == had {
				return false
			}
			had = row.Ingress.Rules
			return true
		})
		took, worked = append(took, time.Since(start)), max(worked, c.Agent(0).CPUTime()-before)
	}
	attack.Wait()
	slices.Sort(took)
	t.Logf("%d changes of the tenant; at most %d sets; %d changes of others took %v (median) to %v, and %v of the agent's CPU time at most; the largest policy alone %v", turns, most, len(took), took[len(took)/2], took[len(took)-1], worked, alone)
	if most > restMost {
		t.Errorf("the node knew %d sets, want %d at most", most, restMost)
	}
	if worked > honestMost*alone {
		t.Errorf("the agent worked for %v until a small change of somebody else was enforced, and for %v on the largest policy alone", worked, alone)
	}
	for i := range evil {
		c.Remove(fmt.Sprint("policy-evil.m", i))
	}
	testutil.WaitFor(t, 2*soon, "all that the policies have left to be cleaned up", func() bool { return known() < restBlocks/10 })
}
