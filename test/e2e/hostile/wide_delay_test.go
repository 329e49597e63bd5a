package hostile

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
)

const (
	wideRules   = 16_000 // of a policy of a tenant, nearly as many as a pod may have
	wideLarge   = 5      // such policies in a series
	wideChanges = 10     // of others without one, in a series
	wideSeries  = 6      // at most: one in which the machine does little else counts
	wideMust    = 100 * time.Millisecond
)

// Changes of others come into force while the largest policy of a tenant is on its way, from its manifest to the kernel. Even the slowest of
// those beside one policy takes no more than 100 ms longer than a change without it: so it is for most of the policies.
func TestTheLargestPolicyDelaysNoOtherChange(t *testing.T) {
	testcluster.NeedsBPF(t, "marks have no room for the classes of such a policy, which is refused")
	s := newScene(t)
	s.Policy("b", `{podSelector: {matchLabels: {app: b}}, policyTypes: [Ingress]}`)
	s.AwaitPolicies(s.b, 1, 0)
	large, others := &largePolicy{scene: s}, &opened{scene: s}
	large.write()
	testutil.WaitFor(t, 4*soon, "a large policy to be enforced", large.enforced)
	for i := 1; ; i++ {
		var alone, slowest []time.Duration
		for range wideChanges {
			alone = append(alone, others.next(t))
		}
		begun, before := time.Now(), others.changes
		for range wideLarge {
			slowest = append(slowest, large.slowestBeside(t, others))
		}
		slices.Sort(alone)
		slices.Sort(slowest)
		without, beside := alone[len(alone)/2], slowest[len(slowest)/2]
		t.Logf("a change takes %v; while a policy of %d rules comes, for %v, the slowest of %d takes %v (least %v, most %v)", without, wideRules,
			time.Since(begun)/wideLarge, (others.changes-before)/wideLarge, beside, slowest[0], slowest[len(slowest)-1])
		if beside-without <= wideMust {
			return
		}
		if i == wideSeries {
			t.Fatalf("in none of %d series the slowest change took no more than %v longer", wideSeries, wideMust)
		}
	}
}

// largePolicy is one of evil/m, which another replaces each time: each has other blocks, and one rule more.
type largePolicy struct {
	*scene
	written int
}

func (l *largePolicy) write() {
	l.T.Helper()
	l.written++
	l.Policy("evil/m", blocksWithPorts("m", l.written, wideRules+l.written))
}

// enforced reports whether the one that was written last is in force: its rules, and the default.
func (l *largePolicy) enforced() bool {
	row := l.Row(l.m)
	return row != nil && row.Ingress.Rules == wideRules+l.written+1 && row.Error == ""
}

// slowestBeside writes the next one, and returns how long the slowest of the others' changes takes until it is in force: one at least.
func (l *largePolicy) slowestBeside(t *testing.T, others *opened) (slowest time.Duration) {
	t.Helper()
	l.write()
	for n := 0; n == 0 || !l.enforced(); n++ {
		slowest = max(slowest, others.next(t))
	}
	return slowest
}

// opened is a port of shop/b that policy opens, another one with each change.
type opened struct {
	*scene
	changes int
}

// next returns how long the next change takes until it is in force.
func (o *opened) next(t *testing.T) time.Duration {
	t.Helper()
	o.changes++
	port := uint16(1000 + o.changes)
	c := change{cluster: o.Cluster, name: "open", pair: openPair(t, o.a, o.b, port),
		spec: fmt.Sprintf(`{podSelector: {matchLabels: {app: b}}, ingress: [{ports: [{port: %d, protocol: UDP}]}]}`, port)}
	defer c.pair.close()
	took, err := c.written()
	if err != nil {
		t.Fatal(err)
	}
	return took
}
