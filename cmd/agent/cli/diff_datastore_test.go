package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// clusterOf serves the lists of an API server without Calico's kinds: the objects by path. No watch of it has an event.
func clusterOf(t *testing.T, objects map[string][]string) (kubeconfig string) {
	t.Helper()
	kinds := map[string][2]string{ // by path: apiVersion and kind
		"/api/v1/pods": {"v1", "Pod"}, "/api/v1/namespaces": {"v1", "Namespace"}, "/api/v1/nodes": {"v1", "Node"}, "/api/v1/services": {"v1", "Service"},
		"/api/v1/serviceaccounts":                    {"v1", "ServiceAccount"},
		"/apis/discovery.k8s.io/v1/endpointslices":   {"discovery.k8s.io/v1", "EndpointSlice"},
		"/apis/networking.k8s.io/v1/networkpolicies": {"networking.k8s.io/v1", "NetworkPolicy"},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind, known := kinds[r.URL.Path]
		w.Header().Set("Content-Type", "application/json")
		switch q := r.URL.Query(); {
		case r.URL.Path == "/readyz":
		case r.URL.Path == "/apis":
			fmt.Fprint(w, `{"kind": "APIGroupList", "apiVersion": "v1", "groups": []}`)
		case !known:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"}`)
		case q.Get("sendInitialEvents") != "":
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 422, "reason": "Invalid"}`)
		case q.Get("watch") != "":
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			fmt.Fprintf(w, `{"apiVersion": %q, "kind": %q, "metadata": {"resourceVersion": "7"}, "items": [%s]}`, kind[0], kind[1]+"List", strings.Join(objects[r.URL.Path], ","))
		}
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": server.URL}}},
		"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c", "user": "c"}}},
		"users":    []any{map[string]any{"name": "c", "user": map[string]any{"token": "secret"}}}})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// The objects before the change are those of a cluster. A policy of it is deleted, replaced and repeated.
func TestDiffReadsTheObjectsOfACluster(t *testing.T) {
	const policy = `{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "db", "namespace": "shop"%s}, "spec": {"podSelector": {"matchLabels": {"app": "db"}}, "ingress": [%s]}}`
	const web = `{"from": [{"podSelector": {"matchLabels": {"app": "web"}}}]}`
	pod := func(name, address string) string {
		return fmt.Sprintf(`{"metadata": {"name": %q, "namespace": "shop", "uid": %q, "labels": {"app": %q}}, "spec": {"nodeName": "n1", "containers": [{"name": "c"}]},
			"status": {"phase": "Running", "podIPs": [{"ip": %q}]}}`, name, name, name, address)
	}
	kubeconfig := clusterOf(t, map[string][]string{
		"/api/v1/nodes":      {`{"metadata": {"name": "n1"}, "status": {"addresses": [{"type": "InternalIP", "address": "192.168.0.1"}]}}`},
		"/api/v1/namespaces": {`{"metadata": {"name": "shop"}}`},
		"/api/v1/pods":       {pod("web", "10.0.0.1"), pod("db", "10.0.0.2")},
		"/apis/networking.k8s.io/v1/networkpolicies": {fmt.Sprintf(policy, `, "uid": "u"`, web)},
	})
	diff := func(input string, code int, words []string, args ...string) {
		t.Helper()
		var out bytes.Buffer
		cmd := root()
		cmd.SetArgs(append([]string{"diff", "--datastore", "kubernetes", "--kubeconfig", kubeconfig}, args...))
		cmd.SetIn(strings.NewReader(input))
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		err := cmd.ExecuteContext(t.Context())
		if got, _ := err.(exitCode); int(got) != code || err != nil && code == 0 {
			t.Errorf("%q ends with %v, want exit status %d:\n%s", args, err, code, &out)
		}
		for _, word := range words {
			if !strings.Contains(out.String(), word) {
				t.Errorf("%q: no %q in\n%s", args, word, &out)
			}
		}
	}
	diff(fmt.Sprintf(policy, "", web), 0, []string{"diff: no verdict changes; 2 pods compared"}, "-")
	diff(fmt.Sprintf(policy, "", ""), 1, []string{"allow -> deny: ingress of shop/db", "from     shop/web", "was      allow by NetworkPolicy shop/db", "verdicts change for 1 pod"}, "-")
	diff(fmt.Sprintf(policy, "", web), 1, []string{"deny -> allow: ingress of shop/db"}, "--delete", "-")
}
