package datastore

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/inspect"
)

// 100,000 endpoints and 10,000 policies in etcd: how long an agent needs from its start until it knows them all, how long a
// change takes then, and what memory it has. It is in docs/sizing.md.
func TestManyObjectsInEtcd(t *testing.T) {
	if testutil.Getenv("MARGAY_E2E_LONG") != "1" {
		t.Skip("takes minutes; MARGAY_E2E_LONG=1 runs it")
	}
	const endpoints, namespaces, policies = 100_000, 100, 10_000
	s := newServer(t, "--quota-backend-bytes=4294967296")
	s.start()
	st := store{t, s.client(nil, "")}
	fill := filler{t: t, c: st.c}
	for i := range namespaces {
		fill.put(fmt.Sprintf("profiles/kns.ns%d", i), fmt.Sprintf(`{"metadata": {"name": "kns.ns%d"}, "spec": {"ingress": [{"action": "Allow"}],
			"egress": [{"action": "Allow"}], "labelsToApply": {"pcns.projectcalico.org/name": "ns%[1]d"}}}`, i))
	}
	for i := range endpoints {
		ns := i % namespaces
		fill.put(fmt.Sprintf("workloadendpoints/ns%d/pod%d", ns, i), fmt.Sprintf(`{"kind": "WorkloadEndpoint", "apiVersion": "projectcalico.org/v3",
			"metadata": {"name": "pod%d", "namespace": "ns%d", "labels": {"app": "app%d", "projectcalico.org/namespace": "ns%[2]d"}},
			"spec": {"orchestrator": "k8s", "workload": "pod%[1]d", "pod": "pod%[1]d", "node": "n%[4]d", "endpoint": "eth0", "interfaceName": "cali%[1]d",
			"ipNetworks": ["10.%[5]d.%[6]d.%[7]d/32"], "profiles": ["kns.ns%[2]d"]}}`, i, ns, i/namespaces%100, i/100, i>>16, i>>8&255, i&255))
	}
	for i := range policies {
		ns := i % namespaces
		fill.put(fmt.Sprintf("networkpolicies/ns%d/policy%d", ns, i), fmt.Sprintf(`{"kind": "NetworkPolicy", "apiVersion": "projectcalico.org/v3",
			"metadata": {"name": "policy%d", "namespace": "ns%d"}, "spec": {"selector": "app == 'app%d'", "types": ["Ingress"],
			"ingress": [{"action": "Allow", "protocol": "TCP", "source": {"selector": "app == 'app%d'"}, "destination": {"ports": [80]}}]}}`, i, ns, i/namespaces, (i/namespaces+1)%100))
	}
	fill.flush()
	st.ready(true)

	dir := t.TempDir()
	socket := inspect.Client{Socket: filepath.Join(dir, "agent.sock")}
	cmd := exec.Command(testcluster.Build(t), "run", "--datastore", "etcd", "--etcd-endpoints", "http://"+s.address, "--dataplane", "record",
		"--node", "n7", "--socket", socket.Socket, "--bpffs", dir, "--health-address", freeAddress(t), "--metrics-address", freeAddress(t), "--log-level", "warn")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	ask := func(what string) *inspect.Answer {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		a, err := socket.Ask(ctx, "/v1/"+what, nil)
		if err != nil {
			return &inspect.Answer{}
		}
		return a
	}
	deadline := time.Now().Add(3 * time.Minute)
	for a := ask("status"); a.Status == nil || !a.Status.InSync || !a.Status.Ready; a = ask("status") {
		select {
		case err := <-ended:
			t.Fatalf("the agent ended: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("not in sync: %+v", a.Status)
		}
	}
	inSync := time.Since(began)
	resident, peak := memory(t, cmd.Process.Pid)
	for _, k := range ask("status").Status.Kinds {
		if want := map[string]int{"WorkloadEndpoint": endpoints, "NetworkPolicy.projectcalico.org": policies}[k.Kind]; want > 0 && k.Objects != want {
			t.Errorf("%s: %d objects, want %d", k.Kind, k.Objects, want)
		}
	}
	began = time.Now()
	fill.put("networkpolicies/ns0/new", `{"metadata": {"name": "new", "namespace": "ns0"}, "spec": {"selector": "app == 'app7'", "types": ["Ingress"]}}`)
	fill.flush()
	until(t, "a new policy is known", func() bool { return len(ask("policies").Policies) == policies+1 })
	t.Logf("%d endpoints, %d policies: in sync after %v with %d MB resident, %d MB at most; a new policy is in force at most %v after its write",
		endpoints, policies, inSync, resident, peak, time.Since(began))
	if inSync > time.Minute || peak > 2000 {
		t.Error("that is too much")
	}
}

// filler writes many objects, a hundred at a time.
type filler struct {
	t   testing.TB
	c   *clientv3.Client
	ops []clientv3.Op
}

func (f *filler) put(path, value string) {
	f.t.Helper()
	if f.ops = append(f.ops, clientv3.OpPut(root+path, value)); len(f.ops) == 100 {
		f.flush()
	}
}

func (f *filler) flush() {
	f.t.Helper()
	if _, err := f.c.Txn(f.t.Context()).Then(f.ops...).Commit(); err != nil {
		f.t.Fatal(err)
	}
	f.ops = nil
}

// memory is what the process has, and has had at most, in MB.
func memory(t testing.TB, pid int) (resident, peak int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		kb := 0
		if len(fields) > 1 {
			kb, _ = strconv.Atoi(fields[1])
		}
		switch fields[0] {
		case "VmRSS:":
			resident = kb >> 10
		case "VmHWM:":
			peak = kb >> 10
		}
	}
	return resident, peak
}
