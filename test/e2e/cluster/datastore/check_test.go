package datastore

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
)

// margay check reads an etcd as an agent would, and says what is wrong with its objects, or why it cannot read them.
func TestCheckReadsEtcd(t *testing.T) {
	s := newServer(t)
	s.start()
	st := store{t, s.client(nil, "")}
	check := func(endpoint string, want int, words ...string) {
		t.Helper()
		out, err := exec.Command(testcluster.Build(t), "check", "--datastore", "etcd", "--etcd-endpoints", endpoint).CombinedOutput()
		code := 0
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			code = exit.ExitCode()
		}
		for _, w := range words {
			if !strings.Contains(string(out), w) {
				t.Errorf("no %q in %s", w, out)
			}
		}
		if code != want {
			t.Errorf("exit status %d (%v), want %d: %s", code, err, want, out)
		}
	}
	check("http://"+freeAddress(t), 2, "cannot be reached")
	check("http://"+s.address, 2, "there is no ClusterInformation")
	st.ready(true)
	check("http://"+s.address, 0, "datastore etcd has 0 objects", "all is well")
	put := func(key, value string) {
		t.Helper()
		if _, err := st.c.Put(t.Context(), root+key, value); err != nil {
			t.Fatal(err)
		}
	}
	put("workloadendpoints/shop/a", `{"metadata": {"name": "a", "namespace": "shop", "labels": {"app": "a"}}, "spec": {"orchestrator": "k8s", "workload": "a",
		"node": "n1", "endpoint": "eth0", "interfaceName": "cali1", "ipNetworks": ["10.0.0.1/32"], "profiles": []}}`)
	put("networkpolicies/shop/good", `{"metadata": {"name": "good", "namespace": "shop"}, "spec": {"selector": "app == 'a'", "types": ["Ingress"]}}`)
	check("http://"+s.address, 0, "has 2 objects", "all is well")
	put("networkpolicies/shop/bad", `{"metadata": {"name": "bad", "namespace": "shop"}, "spec": {"selector": "has("}}`)
	put("networkpolicies/shop/idle", `{"metadata": {"name": "idle", "namespace": "shop"}, "spec": {"selector": "app == 'gone'", "types": ["Ingress"]}}`)
	check("http://"+s.address, 1, "NetworkPolicy.projectcalico.org shop/bad: rejected: spec.selector", "shop/idle: lint: selects no pod", "check: 2 problems")
}
