package inspect_test

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/inspect/rows"
	"github.com/margay-project/margay/pkg/lint"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// listen answers every question on a socket of its own.
func listen(t *testing.T, status int, body string) inspect.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		if _, err := w.Write([]byte(body)); err != nil {
			t.Error(err)
		}
	})}
	done := make(chan error)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return inspect.Client{Socket: path}
}

func TestClientTellsErrorsApart(t *testing.T) {
	if _, err := (inspect.Client{Socket: filepath.Join(t.TempDir(), "none.sock")}).Ask(t.Context(), "/v1/status", nil); !errors.Is(err, inspect.ErrNotRunning) {
		t.Errorf("nobody listens: error %v, want %v", err, inspect.ErrNotRunning)
	}
	_, err := listen(t, http.StatusUnprocessableEntity, `{"error":"no pod shop/x"}`).Ask(t.Context(), "/v1/explain", nil)
	if err == nil || err.Error() != "no pod shop/x" {
		t.Errorf("the agent's error came as %v", err)
	}
	_, err = listen(t, http.StatusNotFound, "404 page not found").Ask(t.Context(), "/v1/new", nil)
	if err == nil || !strings.Contains(err.Error(), "/v1/new") || !strings.Contains(err.Error(), "404") {
		t.Errorf("an older agent that does not know the question: %v", err)
	}
	answer, err := listen(t, http.StatusOK, `{"status":{"ready":true}}`).Ask(t.Context(), "/v1/status", nil)
	if err != nil || !answer.Status.Ready {
		t.Errorf("answer %+v, %v", answer, err)
	}
}

func mustSelector(t *testing.T, text string) *selector.Selector {
	t.Helper()
	s, err := selector.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLintNamesObjectAndRule(t *testing.T) {
	updates := []model.Update{
		model.EndpointUpdate{ID: model.WorkloadID("shop", "a"), Endpoint: &model.Endpoint{
			Node: "n", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Labels: map[string]string{"app": "a"},
		}},
		model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindKubernetesNetworkPolicy, Namespace: "shop", Name: "p"}, Policy: &model.Policy{
			Tier: model.TierDefault, Selector: mustSelector(t, "app == 'a'"), AppliesIngress: true,
			Ingress: []model.Rule{{Action: model.Allow}, {Action: model.Deny, Index: 1}},
		}},
		model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "g"}, Policy: &model.Policy{
			Tier: model.TierDefault, Selector: mustSelector(t, "app == 'b'"), AppliesIngress: true,
		}},
	}
	var got []inspect.ProblemRow
	for _, f := range lint.Check(updates) {
		got = append(got, rows.Finding(f))
	}
	want := []inspect.ProblemRow{
		{Severity: "lint", Object: "GlobalNetworkPolicy g", Reason: "selects no pod"},
		{Severity: "lint", Object: "NetworkPolicy shop/p", Field: "ingress[1]", Reason: "never decides: earlier rules match every packet that it could match", Namespace: "shop"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
