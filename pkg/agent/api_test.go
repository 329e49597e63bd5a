package agent

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// enforcer takes every change and enforces nothing.
type enforcer struct {
	dataplane.Dataplane
	applied chan struct{}
}

func (e *enforcer) Apply(context.Context, model.Changes) error {
	select {
	case e.applied <- struct{}{}:
	default:
	}
	return nil
}

const shop = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {nodeName: n1, containers: [{name: c}]}
status: {podIPs: [{ip: 10.0.0.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop, labels: {app: db}}
spec: {nodeName: n2, containers: [{name: c}]}
status: {podIPs: [{ip: 10.0.0.2}]}
---
apiVersion: v1
kind: Pod
metadata: {name: lost, namespace: nowhere}
spec: {nodeName: n1, containers: [{name: c}]}
status: {podIPs: [{ip: 10.0.0.3}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 80}]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress: [{ports: [{port: https}]}]
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {clusterIP: 10.96.0.1, ports: [{port: 5432}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db-1, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.2]}]
ports: [{port: 81}]
`

// serve runs an agent of node n1 on the socket until the test ends.
func serve(t *testing.T, socket string) inspect.Client {
	t.Helper()
	source := syncer.NewMemory()
	for _, doc := range kinds.Parse("shop.yaml", []byte(shop)) {
		source.Put(doc.Updates...)
	}
	source.Sync()
	dp := &enforcer{dataplane.NewFake(), make(chan struct{}, 1)}
	o := complete(t, Options{Node: "n1", Source: source, Graph: calc.New("n1"), Dataplane: dp, Log: slog.New(slog.DiscardHandler)})
	loop := New(o)
	source.Report([]validate.Problem{
		{Ref: validate.Ref{Kind: "Pod", Name: "x"}, Severity: validate.Rejected, Field: "spec", Reason: "wrong"},
	}, []syncer.KindStatus{{Kind: "Pod", State: syncer.KindSynced, Required: true, Listed: true, Objects: 3}})
	api := &API{Loop: loop, Health: o.Health, Plane: plane{}, Reports: loop.Reports(), Node: "n1", Version: "test", Started: time.Now()}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- loop.Run(ctx) }()
	go func() { done <- api.Serve(ctx, socket) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is left: %v", err)
		}
	})
	select {
	case <-dp.applied:
	case <-time.After(time.Minute):
		t.Fatal("nothing was applied")
	}
	client := inspect.Client{Socket: socket}
	testutil.WaitFor(t, time.Minute, "the agent to be ready", func() bool {
		answer, err := client.Ask(t.Context(), "/v1/status", nil)
		return err == nil && answer.Status.Ready
	})
	return client
}

func TestAPIAnswers(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "run", "agent.sock")
	client := serve(t, socket)
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v; only root may ask", info.Mode(), err)
	}
	ask := func(path string, parameters url.Values) *inspect.Answer {
		t.Helper()
		answer, err := client.Ask(t.Context(), path, parameters)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return answer
	}
	status := ask("/v1/status", nil).Status
	if status.Node != "n1" || status.Version != "test" || status.Endpoints != 2 || status.Problems != 2 || !status.InSync ||
		len(status.Kinds) != 1 || status.Kinds[0].State != "synced" || status.Kinds[0].Objects != 3 {
		t.Errorf("status %+v", status)
	}
	want := []inspect.ProblemRow{
		{Severity: "rejected", Object: "Pod x", Field: "spec", Reason: "wrong"},
		{Severity: "warning", Object: "endpoint nowhere/lost", Reason: "Namespace nowhere does not exist: traffic that no policy decides is denied", Namespace: "nowhere"},
	}
	if diff := cmp.Diff(want, ask("/v1/problems", nil).Problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	thousand, million := 1000.0, 1e6
	policies := []inspect.PolicyRow{
		{Tier: "default", TierOrder: &million, Order: &thousand, Kind: "NetworkPolicy", Namespace: "shop", Name: "db"}, // of another node
		{Tier: "default", TierOrder: &million, Order: &thousand, Kind: "NetworkPolicy", Namespace: "shop", Name: "web", Ingress: 1},
	}
	if diff := cmp.Diff(policies, ask("/v1/policies", nil).Policies); diff != "" {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
	order := ask("/v1/order", url.Values{"endpoint": {"shop/d"}}).Order // the beginning of db, which is of another node
	if len(order) == 0 || order[0].Name != "db" || order[0].Step != explain.StepPolicy || *order[0].Order != 1000 {
		t.Errorf("order of a pod: %+v", order)
	}
	if _, err := client.Ask(t.Context(), "/v1/order", url.Values{"endpoint": {"shop/none"}}); err == nil || !strings.Contains(err.Error(), "no pod shop/none") {
		t.Errorf("order of what is not there: %v", err)
	}
	lint := ask("/v1/lint", nil).Problems
	if len(lint) != 1 || lint[0].Object != "NetworkPolicy shop/web" || lint[0].Severity != inspect.SeverityLint {
		t.Errorf("lint %+v", lint)
	}
	// The policy of a pod of another node is explained too.
	explained := func(dst string) (*explain.Explanation, error) {
		t.Helper()
		request, err := explain.ParseRequest("shop/web", dst)
		if err != nil {
			t.Fatal(err)
		}
		parameters, err := inspect.ExplainParameters(request)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Ask(t.Context(), "/v1/explain", parameters)
		if err != nil {
			return nil, err
		}
		return answer.Explanation, nil
	}
	e, err := explained("shop/d:81/tcp") // the beginning of db
	if err != nil || e.Verdict != "deny" || e.Ingress.Name != "db" || e.Ingress.Rule != "end-of-tier" || e.Egress.Verdict != "allow" {
		t.Errorf("explanation %+v, %v", e, err)
	}
	if e, err := explained("svc/shop/db:5432"); err != nil || e.Verdict != "deny" || e.Flow.Port != 81 {
		t.Errorf("explanation of a Service %+v, %v", e, err)
	}
	if _, err := explained("shop/none:1"); err == nil || !strings.Contains(err.Error(), "no pod or Service shop/none") {
		t.Errorf("explanation of what is not there: %v", err)
	}
	if _, err := client.Ask(t.Context(), "/v1/explain", url.Values{"request": {"x"}}); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("a request that is none: %v", err)
	}
	if _, err := client.Ask(t.Context(), "/v1/nonsense", nil); err == nil {
		t.Error("an answer to a question that is none")
	}
}

func TestSocketOfAnAgentThatIsGoneIsReplaced(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := (inspect.Client{Socket: socket}).Ask(t.Context(), "/v1/status", nil); !errors.Is(err, inspect.ErrNotRunning) {
		t.Errorf("error %v, want %v", err, inspect.ErrNotRunning)
	}
	serve(t, socket)
}

func TestSocketOfARunningAgentIsLeftAlone(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	client := serve(t, socket)
	err := (&API{}).Serve(t.Context(), socket)
	if err == nil || !strings.Contains(err.Error(), "another agent") {
		t.Errorf("error %v", err)
	}
	if _, err := client.Ask(t.Context(), "/v1/status", nil); err != nil {
		t.Errorf("the first agent does not answer any more: %v", err)
	}
}

func TestAFileThatIsNoSocketIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(path, []byte(shop), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // without the guard it would serve for ever
	defer cancel()
	if err := (&API{}).Serve(ctx, path); err == nil || !strings.Contains(err.Error(), path+" is no socket") {
		t.Errorf("error %v", err)
	}
	if left, err := os.ReadFile(path); err != nil || string(left) != shop {
		t.Errorf("the file afterwards: %q, %v", left, err)
	}
}

// TestASocketThatWasRemovedIsNoticed: tools do not find the agent any more, so its owner has to serve again.
func TestASocketThatWasRemovedIsNoticed(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"removed":  os.Remove,
		"replaced": func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "agent.sock")
			served := make(chan error, 1)
			go func() { served <- (&API{}).serve(t.Context(), path, time.Millisecond) }()
			testutil.WaitFor(t, time.Minute, "the socket", func() bool {
				_, err := os.Lstat(path)
				return err == nil
			})
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			if err := <-served; err == nil || !strings.Contains(err.Error(), "not there any more") {
				t.Errorf("serving ended with %v", err)
			}
			if _, err := os.Lstat(path); (err == nil) != (name == "replaced") {
				t.Errorf("the file of another process: %v", err)
			}
		})
	}
}

// slowReports say what is wrong when they are released.
type slowReports struct {
	*syncer.Reports
	asked, release chan struct{}
}

func (s slowReports) Problems() []validate.Problem {
	close(s.asked)
	<-s.release
	return nil
}

func TestServeEndsOnlyWhenItsAnswersHave(t *testing.T) {
	t.Run("soon", func(t *testing.T) { endWhileAnswering(t, true) })
	// Nobody gets the answer then, but it may be reading maps that are closed next.
	t.Run("late", func(t *testing.T) { endWhileAnswering(t, false) })
}

// endWhileAnswering ends Serve during an answer, which takes a moment longer and arrives, or so long that its connection is closed.
func endWhileAnswering(t *testing.T, arrives bool) {
	t.Parallel()
	store := syncer.NewMemory()
	o := complete(t, Options{Source: store, Graph: calc.New("n"), Dataplane: dataplane.NewFake(), Log: slog.New(slog.DiscardHandler)})
	loop := New(o)
	asked, release := make(chan struct{}), make(chan struct{})
	api := &API{Loop: loop, Health: o.Health, Plane: plane{}, Reports: slowReports{loop.Reports(), asked, release}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ran, served := make(chan error, 1), make(chan error, 1)
	socket := filepath.Join(t.TempDir(), "sock")
	go func() { ran <- loop.Run(ctx) }()
	go func() { served <- api.Serve(ctx, socket) }()
	answered := make(chan error, 1)
	go func() {
		var err error
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for t.Context().Err() == nil {
			if _, err = (inspect.Client{Socket: socket}).Ask(t.Context(), "/v1/problems", nil); !errors.Is(err, inspect.ErrNotRunning) {
				break
			}
			<-tick.C
		}
		answered <- err
	}()
	<-asked
	cancel()
	if !arrives {
		answered <- <-answered // it is given up
	}
	select {
	case err := <-served:
		t.Errorf("Serve ended while it was answering: %v", err)
		served <- nil
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	if err := errors.Join(<-served, <-ran); err != nil {
		t.Error(err)
	}
	if err := <-answered; (err == nil) != arrives {
		t.Errorf("error of the answer: %v", err)
	}
	if _, err := os.Lstat(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}
