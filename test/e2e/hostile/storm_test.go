package hostile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

const (
	stormEvery = 5 * time.Millisecond
	stormNames = 24 // objects of each kind that change in turn
	stormPods  = 3
	// A storm lasts for stormFor, and until stormChanges of somebody else are enforced.
	stormFor     = 3 * time.Second
	stormChanges = 5
	// stormLines is what a storm may add to the log in a minute, the start of another one included, in which limits begin again.
	stormLines = 300
	// stormLeft is how many entries more than before a storm the kernel may keep: some are kept for a while, and IP sets have an anchor for
	// each length of prefix that was ever used.
	stormLeft = 40
)

// put puts a manifest in place at once. It may be called from any goroutine.
func put(t *testing.T, dir, name, text string) {
	t.Helper()
	temporary := filepath.Join(dir, name+".tmp")
	if err := os.WriteFile(temporary, []byte(text), 0o600); err != nil {
		t.Error(err)
		return
	}
	if err := os.Rename(temporary, filepath.Join(dir, name+".yaml")); err != nil {
		t.Error(err)
	}
}

// during calls turn all the time, from another goroutine, until end is called or the test ends. turns is the number of calls so far.
func during(t *testing.T, turn func(i int)) (turns *atomic.Int64, end func()) {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	turns = new(atomic.Int64)
	running.Go(func() {
		for tick := time.Tick(stormEvery); ctx.Err() == nil; <-tick {
			turn(int(turns.Load()))
			turns.Add(1)
		}
	})
	end = func() {
		stop()
		running.Wait()
	}
	t.Cleanup(end)
	return turns, end
}

// removeAll removes the manifests whose names begin so.
func (s *scene) removeAll(t *testing.T, prefix string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.Dir, prefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// stormTurn changes one object of the tenant: policies that get other addresses, other selectors, more and fewer of them, other names; and
// objects that policies refer to.
func stormTurn(t *testing.T, dir string, i int) {
	k, pod := i/5%stormNames, i%stormPods
	policy := func(kind, name, spec string) {
		put(t, dir, fmt.Sprintf("storm-%s%d", kind, k), fmt.Sprintf("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: %s, namespace: evil}\nspec: %s\n", name, spec))
	}
	applies := fmt.Sprintf("podSelector: {matchLabels: {app: x%d}}", pod)
	switch i % 5 {
	case 0:
		policy("block", fmt.Sprint("block", k), fmt.Sprintf("{%s, ingress: [{from: [{ipBlock: {cidr: 22.%d.%d.0/24}}], ports: [{port: %d}]}]}", applies, i>>8&255, i&255, 1+i%60_000))
	case 1:
		policy("name", fmt.Sprint("name", i), fmt.Sprintf("{%s, ingress: [{ports: [{port: %d}]}]}", applies, 1+i%60_000))
	case 2:
		values := make([]string, 1+i%50)
		for n := range values {
			values[n] = fmt.Sprintf("v%d-%d", i, n)
		}
		not := fmt.Sprintf("podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [%s]}]}", strings.Join(values, ", "))
		policy("grow", fmt.Sprint("grow", k), fmt.Sprintf("{%s, policyTypes: [Ingress, Egress], ingress: [{from: [{namespaceSelector: {}, %s}]}], egress: [{to: [{%[2]s}]}]}", not, not))
	case 3:
		put(t, dir, fmt.Sprint("storm-calico", k), fmt.Sprintf(`apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: c%d, namespace: evil}
spec: {order: %d, selector: app == 'x%d', types: [Ingress], ingress: [{action: Allow, source: {selector: net == 'n%d'}}, {action: Deny, protocol: TCP, source: {notNets: [30.%d.%d.0/24]}}]}
---
apiVersion: projectcalico.org/v3
kind: NetworkSet
metadata: {name: s%[1]d, namespace: evil, labels: {net: n%[7]d}}
spec: {nets: [31.%[5]d.%[6]d.0/24, 32.%[6]d.0.0/16]}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: a%[1]d, namespace: evil, labels: {turn: t%[8]d}}
`, k, i%100, pod, i%3, i>>8&255, i&255, i%2, i))
	case 4:
		put(t, dir, fmt.Sprint("storm-pod", k), fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: away%d, namespace: evil, labels: {app: p%d, team: shop}}
spec: {nodeName: n2, containers: [{name: main}]}
status: {phase: Running, podIP: 10.99.%d.%d, podIPs: [{ip: 10.99.%[3]d.%[4]d}]}
`, k, i, i>>8&255, i&255))
	}
}

// kernelEntries is how much the first node's kernel has of what policies are made of.
func (s *scene) kernelEntries(t *testing.T) (n int) {
	t.Helper()
	if testcluster.IPTables() {
		for _, command := range []string{"iptables-legacy-save", "iptables-nft-save", "ip6tables-legacy-save", "ip6tables-nft-save", "ipset list"} {
			out, err := s.n1.Run(t.Context(), "", "sh", "-c", command)
			if err != nil {
				t.Fatal(err)
			}
			n += strings.Count(out, "\n")
		}
		return n
	}
	m := s.Agent(0).Maps()
	for _, name := range []string{bpf.MargayMapIp4Host, bpf.MargayMapIp4Net, bpf.MargayMapClassSets, bpf.MargayMapSetNames, bpf.MargayMapRuleNames} {
		var key, value []byte
		all := m.Map(name).Iterate()
		for all.Next(&key, &value) {
			n++
		}
		if err := all.Err(); errors.Is(err, ebpf.ErrIterationAborted) {
			n++ // entries have gone meanwhile: there were more than it has found
		} else if err != nil {
			t.Fatalf("read map %s: %v", name, err)
		}
	}
	return n
}

func (s *scene) logLines(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(s.Agent(0).Log)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

// TestAStormOfATenantsChangesLeavesNothing: a tenant creates, changes and renames policies, network sets, service accounts and pods all the time. No
// packet of others is lost or misjudged, their changes are enforced, the log stays short, and when the objects are gone, the
// kernel has no more than before.
func TestAStormOfATenantsChangesLeavesNothing(t *testing.T) {
	s := newScene(t)
	var mine []*lab.Pod
	for i := range stormPods {
		mine = append(mine, s.Pod(s.n1, fmt.Sprint("evil/x", i)))
	}
	server := s.Pod(s.n1, "server")
	s.Policy("server", testcluster.OnlyOpen)
	s.AwaitPolicies(server, 1, 0)
	s.opens("shop/b", 7000, 0)
	s.AwaitPolicies(s.b, 1, 0)
	s.Serve(s.b.Host, 7000)
	s.Serve(s.b.Host, 7001)
	honest := s.StartTraffic(s.a, server)
	before, lines := s.kernelEntries(t), s.logLines(t)

	turns, end := during(t, func(i int) { stormTurn(t, s.Dir, i) })
	begun := time.Now()
	testutil.WaitFor(t, soon, "the tenant's policies to apply", func() bool { r := s.Row(mine[0]); return r != nil && len(r.Ingress.Policies) > 3 })
	most := 0
	for i := uint16(0); i < stormChanges || time.Since(begun) < stormFor || most <= before+stormLeft && time.Since(begun) < soon; i++ {
		port := 7000 + (i+1)%2
		s.opens("shop/b", port, 0)
		testutil.WaitFor(t, soon, "a change of somebody else", func() bool { return s.answers(s.b, port) && !s.answers(s.b, 7000+i%2) })
		most = max(most, s.kernelEntries(t))
	}
	end()
	s.removeAll(t, "storm-")
	for _, p := range mine {
		s.AwaitPolicies(p, 0, 0)
	}
	after := 0
	defer func() {
		t.Logf("%d turns; the kernel had %d entries, %d at most, %d after", turns.Load(), before, most, after)
	}()
	changes := uint16(0)
	testutil.WaitFor(t, soon, "the kernel to have no more than before", func() bool {
		changes++ // some of what is left goes with later changes
		s.opens("shop/b", 7000+changes%2, 0)
		testutil.WaitFor(t, soon, "a change of somebody else", func() bool { return s.answers(s.b, 7000+changes%2) && !s.answers(s.b, 7000+(changes+1)%2) })
		after = s.kernelEntries(t)
		return after <= before+stormLeft
	})
	if most <= before+stormLeft {
		t.Errorf("the kernel had %d entries at most, and %d before: the storm is none", most, before)
	}
	if more := s.logLines(t) - lines; more > stormLines*(1+int(time.Since(begun).Minutes())) {
		t.Errorf("the log has %d more lines", more)
	}
	honest.Stop()
}
