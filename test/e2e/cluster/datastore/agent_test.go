package datastore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/lab"
)

func TestMain(m *testing.M) { testcluster.Main(m) }

// enforced is an agent that reads Calico's objects from a real etcd, with traffic on the pods of its node.
type enforced struct {
	*testcluster.Cluster
	etcd           *server
	store          store
	way            *proxy
	agent          *testcluster.Process
	client, server *lab.Pod
	traffic        *testcluster.Traffic
	stalls         *testutil.Stalls
}

// extraPort is opened by the policy extra, beside what traffic goes to.
const extraPort = 82

func newEnforced(t *testing.T, flags ...string) *enforced {
	t.Helper()
	testutil.Privileged(t)
	testcluster.Build(t)
	e := &enforced{etcd: newServer(t, flags...), stalls: testutil.WatchStalls(t)}
	e.etcd.start()
	e.store = store{t, e.etcd.client(nil, "")}
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	n, err := l.AddNode("n1")
	if err != nil {
		t.Fatal(err)
	}
	// The agent is in its node's network namespace, and the proxy is its way out.
	if err := n.Do(func() error { e.way = newProxy(t, e.etcd.address); return nil }); err != nil {
		t.Fatal(err)
	}
	e.agent = testcluster.NewProcess(t, n, t.TempDir(), "--datastore", "etcd", "--etcd-endpoints", "http://"+e.way.address())
	e.Cluster = &testcluster.Cluster{T: t, Lab: l, Agents: map[*lab.Node]*testcluster.Process{n: e.agent}}
	e.store.ready(true)
	e.object("profiles/kns.shop", "Profile", `{"ingress": [{"action": "Allow"}], "egress": [{"action": "Allow"}],
		"labelsToApply": {"pcns.projectcalico.org/name": "shop"}}`, "")
	e.policy("knp.default.server", testcluster.OpenPort)
	e.client, e.server = e.endpoint(n, "client"), e.endpoint(n, "server")
	e.agent.Start()
	e.AwaitEndpoint(e.client)
	e.AwaitEndpoint(e.server)
	e.AwaitPolicies(e.server, 1, 0)
	e.Serve(e.server.Host, extraPort)
	e.traffic = e.StartTraffic(e.client, e.server)
	e.Reach(e.client.Host, e.server.Host, extraPort, false)
	return e
}

// object writes one, as Calico does.
func (e *enforced) object(path, kind, spec, labels string) {
	e.T.Helper()
	parts := strings.Split(path, "/")
	namespace := ""
	if len(parts) == 3 {
		namespace = fmt.Sprintf(`, "namespace": %q`, parts[1])
	}
	value := fmt.Sprintf(`{"apiVersion": "projectcalico.org/v3", "kind": %q, "metadata": {"name": %q%s, "labels": {%s}}, "spec": %s}`,
		kind, parts[len(parts)-1], namespace, labels, spec)
	if _, err := e.store.c.Put(e.T.Context(), root+path, value); err != nil {
		e.T.Fatal(err)
	}
}

// endpoint plugs a pod and writes its WorkloadEndpoint.
func (e *enforced) endpoint(n *lab.Node, name string) *lab.Pod {
	e.T.Helper()
	p := e.Plug(n, name)
	e.object("workloadendpoints/shop/"+name, "WorkloadEndpoint", fmt.Sprintf(`{"orchestrator": "k8s", "workload": %q, "pod": %q, "node": "n1",
		"endpoint": "eth0", "interfaceName": %q, "ipNetworks": ["%s/32", "%s/128"], "profiles": ["kns.shop"]}`,
		name, name, p.Iface(), p.Addr4(), p.Addr6()), fmt.Sprintf(`"app": %q`, name))
	return p
}

// policy opens a port of the server, as Calico's controller writes a Kubernetes NetworkPolicy.
func (e *enforced) policy(name string, port int) {
	e.T.Helper()
	e.object("networkpolicies/shop/"+name, "NetworkPolicy", fmt.Sprintf(`{"order": 1000, "types": ["Ingress"],
		"selector": "projectcalico.org/orchestrator == 'k8s' && app == 'server'", "ingress": [
		{"action": "Allow", "protocol": "TCP", "destination": {"ports": [%d]}},
		{"action": "Allow", "protocol": "UDP", "destination": {"ports": [%d]}}]}`, port, port), "")
}

func (e *enforced) drop(name string) {
	e.T.Helper()
	if r, err := e.store.c.Delete(e.T.Context(), root+"networkpolicies/shop/"+name); err != nil || r.Deleted != 1 {
		e.T.Fatal(err, r)
	}
}

// is demands that the policies of the server are in force within the time, stalls of the machine apart, and what they open.
func (e *enforced) is(open bool, within time.Duration) {
	e.T.Helper()
	began, policies := time.Now(), 1
	if open {
		policies = 2
	}
	e.AwaitPolicies(e.server, policies, 0)
	if took := e.stalls.Since(began); took > within {
		e.T.Errorf("in force after %v, want at most %v", took, within)
	}
	e.Reach(e.client.Host, e.server.Host, extraPort, open)
	e.traffic.Some("meanwhile")
}

// down waits until the agent reports trouble with etcd, and demands that it stays ready.
func (e *enforced) down(text string) {
	e.T.Helper()
	e.reports("the agent to report "+text, func(s *inspect.StatusReport, k inspect.KindRow) bool {
		return s.Ready && k.State == "failing" && strings.Contains(k.Error, text)
	})
}

// reports waits until the agent reports of etcd what it should.
func (e *enforced) reports(what string, is func(*inspect.StatusReport, inspect.KindRow) bool) {
	e.T.Helper()
	testutil.WaitFor(e.T, testcluster.Soon, what, func() bool {
		a, err := e.agent.Ask("status")
		return err == nil && slices.ContainsFunc(a.Status.Kinds, func(k inspect.KindRow) bool { return k.Kind == "etcd" && is(a.Status, k) })
	})
}

// Everything that befalls an etcd, one after the other, under traffic: nothing that policy allows is lost, nothing passes
// that it denies. The port of the policy extra stays as it was last known, and is right a second after etcd's return.
func TestTrafficThroughEverythingThatBefallsEtcd(t *testing.T) {
	e := newEnforced(t)
	e.policy("extra", extraPort)
	e.is(true, time.Second)

	t.Log("killed and restarted; a policy is deleted as it comes back")
	e.etcd.kill()
	e.down("cannot be reached")
	e.is(true, time.Second)
	e.etcd.start()
	e.drop("extra")
	e.is(false, time.Second)

	t.Log("cut off and compacted")
	e.way.cut()
	e.down("cannot be reached")
	e.policy("extra", extraPort)
	e.store.compact()
	e.is(false, time.Second)
	e.way.open()
	e.is(true, time.Second)

	t.Log("restored from a snapshot to an older revision")
	restore := e.etcd.snapshot(0)
	e.drop("extra")
	e.is(false, time.Second)
	e.way.cut()
	e.etcd.kill()
	restore()
	e.etcd.start()
	e.is(false, time.Second)
	e.way.open()
	e.is(true, time.Second)

	t.Log("wiped, and filled again")
	if _, err := e.store.c.Delete(t.Context(), "/calico", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	e.down("there is no ClusterInformation")
	e.is(true, time.Second)
	e.object("profiles/kns.shop", "Profile", `{"ingress": [{"action": "Allow"}], "egress": [{"action": "Allow"}],
		"labelsToApply": {"pcns.projectcalico.org/name": "shop"}}`, "")
	e.policy("knp.default.server", testcluster.OpenPort)
	for _, p := range []*lab.Pod{e.client, e.server} {
		e.object("workloadendpoints/shop/"+strings.TrimPrefix(p.Name(), "shop/"), "WorkloadEndpoint", fmt.Sprintf(`{"orchestrator": "k8s",
			"workload": "w", "node": "n1", "endpoint": "eth0", "interfaceName": %q, "ipNetworks": ["%s/32", "%s/128"], "profiles": ["kns.shop"]}`,
			p.Iface(), p.Addr4(), p.Addr6()), fmt.Sprintf(`"app": %q`, strings.TrimPrefix(p.Name(), "shop/")))
	}
	e.is(true, time.Second)
	e.store.ready(true)
	e.is(false, time.Second)

	t.Log("slow")
	e.way.slow(200 * time.Millisecond)
	e.policy("extra", extraPort)
	e.is(true, 2*time.Second)

	t.Log("a policy that is no JSON, and one that is not valid")
	for _, bad := range []struct{ value, says string }{
		{"{", "unexpected"},
		{`{"metadata": {"name": "extra", "namespace": "shop"}, "spec": {"selector": "has("}}`, "selector"},
	} {
		if _, err := e.store.c.Put(t.Context(), root+"networkpolicies/shop/extra", bad.value); err != nil {
			t.Fatal(err)
		}
		testutil.WaitFor(t, testcluster.Soon, "a problem that says "+bad.says, func() bool {
			a, err := e.agent.Ask("problems")
			if err != nil || len(a.Problems) != 1 {
				return false
			}
			reason := a.Problems[0].Reason
			return strings.Contains(reason, bad.says) && strings.Contains(reason, "the last good version stays in force")
		})
		e.is(true, time.Second)
	}

	t.Log("the agent is killed and started while etcd is away")
	e.etcd.kill()
	e.agent.Kill()
	e.agent.Launch()
	e.reports("the new agent to have tried etcd", func(s *inspect.StatusReport, k inspect.KindRow) bool {
		return !s.InSync && strings.Contains(k.Error, "cannot be reached")
	})
	e.Reach(e.client.Host, e.server.Host, extraPort, true)
	e.traffic.Some("without etcd")
	e.etcd.start()
	e.drop("extra")
	e.is(false, testcluster.Soon)
	e.traffic.Stop()
}

// Full: policy stays, and what is written when there is room again is in force.
func TestTrafficWhileEtcdIsFull(t *testing.T) {
	e := newEnforced(t, "--quota-backend-bytes=4194304")
	large := strings.Repeat("x", 1<<20)
	for i := 0; ; i++ {
		if _, err := e.store.c.Put(t.Context(), fmt.Sprint("/fill/", i), large); err != nil {
			break // it is full
		}
	}
	if err := e.store.try("x", "Info"); err == nil {
		t.Fatal("etcd is not full")
	}
	e.is(false, time.Second)
	e.way.cut()
	e.down("cannot be reached")
	e.way.open()
	e.is(false, time.Second)
	e.etcd.kill()
	e.etcd.flags = nil
	e.etcd.start()
	if _, err := e.store.c.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	e.policy("extra", extraPort)
	e.is(true, time.Second)
	e.traffic.Stop()
}
