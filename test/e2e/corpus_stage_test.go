package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/corpus"
	"github.com/margay-project/margay/internal/corpus/sockets"
	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/model"
)

// stage is where the cases of the corpus are played one after the other: the nodes n1 and n2 with an agent each that
// read one directory, pods with the addresses of the case, and one outside host that is everybody else.
type stage struct {
	lab    *lab.Lab
	nodes  map[string]*lab.Node
	agents []*testcluster.Process
	world  *lab.External
	pods   map[model.EndpointID]*lab.Pod
	others map[netip.Addr]bool // addresses of world

	dir     string
	rounds  int
	losses  int               // rounds that an object of the one before was missing in
	before  []corpus.Document // of the last round
	spent   []corpus.Document // policies of earlier rounds, which apply to no pod now
	traffic sockets.Traffic

	nodePorts map[nodePort]uint16
}

// Each node has a pod that no case knows of. Its policy shows what has been applied: a rule of it changes in each round,
// its name in rounds from which an object is missing.
const (
	stageNamespace = "margay-e2e"
	stageObjects   = `apiVersion: v1
kind: Namespace
metadata: {name: margay-e2e}
---
apiVersion: v1
kind: Service
metadata: {name: itself, namespace: margay-e2e}
spec: {clusterIP: 10.96.0.9, clusterIPs: [10.96.0.9, "fd96::9"], ports: [{port: 1}]}
`
	markPolicy = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: round-%d, namespace: margay-e2e}
spec: {podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {round: "%d"}}}]}]}
`
)

// nodeAddrs are those of the nodes of the corpus' cluster shop.
var nodeAddrs = map[string][]netip.Addr{
	"n1": {netip.MustParseAddr("192.168.0.1"), netip.MustParseAddr("fd00:192::1")},
	"n2": {netip.MustParseAddr("192.168.0.2"), netip.MustParseAddr("fd00:192::2")},
}

func newStage(t *testing.T) *stage {
	t.Helper()
	testcluster.Build(t)
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &stage{
		lab: l, nodes: map[string]*lab.Node{}, pods: map[model.EndpointID]*lab.Pod{}, others: map[netip.Addr]bool{},
		dir: t.TempDir(), nodePorts: map[nodePort]uint16{},
	}
	objects := stageObjects
	flags := map[string][]string{"n2": {"--interpret", "--no-shortcut"}} // n1 has neither
	for _, name := range []string{"n1", "n2"} {
		n, err := l.AddNode(name, nodeAddrs[name]...)
		if err != nil {
			t.Fatal(err)
		}
		mark, err := n.AddPod(stageNamespace, name)
		if err != nil {
			t.Fatal(err)
		}
		s.nodes[name] = n
		objects += fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: margay-e2e}
spec: {nodeName: %[1]s, containers: [{name: c}]}
status: {phase: Running, podIP: %[2]s}
`, name, mark.Addr4())
		s.agents = append(s.agents, testcluster.NewProcess(t, n, s.dir, flags[name]...))
	}
	if s.world, err = l.AddExternal("world"); err != nil {
		t.Fatal(err)
	}
	s.traffic = sockets.Traffic{Host: s.host, World: s.world.Host, Service: s.toItself, NodePort: s.byNodePort}
	s.write(t, "a-stage", objects)
	for _, a := range s.agents {
		a.Start()
	}
	return s
}

func (s *stage) write(t *testing.T, name, text string) {
	t.Helper()
	temporary := filepath.Join(s.dir, name+".tmp")
	err := os.WriteFile(temporary, []byte(text), 0o600)
	if err = errors.Join(err, os.Rename(temporary, filepath.Join(s.dir, name+".yaml"))); err != nil {
		t.Fatal(err)
	}
}

// apply makes the documents all there is, and waits until both agents enforce them. An agent believes only after a second
// that an object is missing from its file. So policies of the rounds before stay as ones that apply to no pod, while that
// is enough: while no object of another kind is missing, and they are not too many. None stay beside no documents.
func (s *stage) apply(t *testing.T, docs []corpus.Document) {
	t.Helper()
	s.rounds++
	text := corpus.Manifest(docs)
	missing := func(d corpus.Document) bool { return !slices.ContainsFunc(docs, d.SameObject) }
	s.spent = slices.DeleteFunc(append(s.spent, s.before...), func(d corpus.Document) bool { return !missing(d) })
	lost := len(docs) == 0 || len(s.spent) > maxSpent
	replaced := ""
	for _, d := range s.spent {
		policy, ok := d.Spent()
		replaced, lost = replaced+policy, lost || !ok
	}
	if lost {
		s.losses++
		s.spent, replaced = nil, ""
	}
	s.before = docs
	s.write(t, "case", text+replaced+fmt.Sprintf(markPolicy, s.losses, s.rounds))
	mark, rule := fmt.Sprintf("margay-e2e/round-%d", s.losses), fmt.Sprintf("round=%d in ", s.rounds)
	for _, a := range s.agents {
		testutil.WaitFor(t, soon, a.Node.Name()+" to enforce the manifests", func() bool { return s.hasRound(a, mark, rule) })
		if answer, err := a.Ask("status"); err != nil || answer.Status.Error != "" {
			t.Fatalf("status of %s: %+v, %v", a.Node.Name(), answer.Status, err)
		}
	}
}

// maxSpent is how many policies stay that are of no use.
const maxSpent = 20

// hasRound reports whether the agent has in force the policy with that mark and no earlier one, and the rule.
func (s *stage) hasRound(a *testcluster.Process, mark, rule string) bool {
	e := s.endpoint(a, model.WorkloadID(stageNamespace, a.Node.Name()))
	if e == nil || e.Error != "" {
		return false
	}
	// A case may have policies for all pods; of the stage's own, that of this round is the only one left.
	marks := slices.DeleteFunc(slices.Clone(e.Ingress.Policies), func(p string) bool { return !strings.Contains(p, stageNamespace+"/round-") })
	if len(marks) != 1 || !strings.HasSuffix(marks[0], mark) {
		return false
	}
	answer, err := a.Ask("sets")
	return err == nil && slices.ContainsFunc(answer.Sets, func(row inspect.SetRow) bool { return row.Number != 0 && strings.Contains(row.Text, rule) })
}

// endpoint is what an agent says of a local endpoint; nil: it does not know it.
func (s *stage) endpoint(a *testcluster.Process, id model.EndpointID) *inspect.EndpointRow {
	answer, err := a.Ask("endpoints")
	if err != nil {
		return nil
	}
	for i, e := range answer.Endpoints {
		if e.Namespace == id.Namespace && e.Name == id.Name {
			return &answer.Endpoints[i]
		}
	}
	return nil
}

// awaitPods waits until every pod on the stage is enforced as it is plugged in.
func (s *stage) awaitPods(t *testing.T) {
	t.Helper()
	for id, p := range s.pods {
		for _, a := range s.agents {
			if a.Node != p.Node() {
				continue
			}
			testutil.WaitFor(t, soon, p.Name()+" to be enforced", func() bool {
				e := s.endpoint(a, id)
				return e != nil && e.Error == "" && int(e.Ifindex) == p.IfIndex() && len(e.Attached) > 0 && slices.Equal(e.Addrs, p.Addrs())
			})
		}
	}
}

// plug makes the pods of the lab those that the case leaves, and gives all other addresses in the checks to the
// outside host.
func (s *stage) plug(t *testing.T, c corpus.Case, checks []corpus.Check) {
	t.Helper()
	endpoints := c.Endpoints()
	for id, p := range s.pods {
		if e := endpoints[id]; e == nil || e.Node != p.Node().Name() || !slices.Equal(e.Addrs, p.Addrs()) {
			s.must(t, s.route(p, false), p.Node().DelPod(p))
			delete(s.pods, id)
		}
	}
	taken := map[netip.Addr]bool{}
	for _, n := range s.nodes {
		mark(taken, n.Addrs())
	}
	for _, e := range endpoints {
		mark(taken, e.Addrs)
	}
	others := map[netip.Addr]bool{}
	for _, k := range checks {
		for _, a := range []netip.Addr{k.Packet.Src, k.Packet.Dst, k.Client} {
			if a.IsValid() && !taken[a] {
				others[a] = true
			}
		}
	}
	for a := range s.others {
		if !others[a] {
			s.must(t, s.world.RemoveAddr(a))
		}
	}
	for id, e := range endpoints {
		if s.pods[id] == nil {
			p, err := s.nodes[e.Node].AddPod(id.Namespace, id.Name, e.Addrs...)
			s.must(t, err)
			s.pods[id] = p
			s.must(t, s.route(p, true))
		}
	}
	for a := range others {
		if !s.others[a] {
			s.must(t, s.world.AddAddr(a))
		}
	}
	s.others = others
}

func mark(set map[netip.Addr]bool, addrs []netip.Addr) {
	for _, a := range addrs {
		set[a] = true
	}
}

// route adds or removes the routes to a pod from everywhere else.
func (s *stage) route(p *lab.Pod, add bool) error {
	var errs []error
	for _, a := range p.Addrs() {
		host := netip.PrefixFrom(a, a.BitLen())
		for _, n := range s.nodes {
			switch {
			case n == p.Node():
			case add:
				errs = append(errs, n.RouteVia(host, p.Node()))
			default:
				errs = append(errs, n.UnrouteVia(host, p.Node()))
			}
		}
		if add {
			errs = append(errs, s.world.RouteVia(host, p.Node()))
		} else {
			errs = append(errs, s.world.UnrouteVia(host, p.Node()))
		}
	}
	return errors.Join(errs...)
}

func (s *stage) must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
