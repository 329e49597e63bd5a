package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// API answers tools on the agent's unix socket. It reads, and changes nothing.
type API struct {
	Loop     *Loop
	BPF      *dataplane.BPF
	Problems func() []validate.Problem // of the source
	Node     string
	Version  string
	Started  time.Time
}

// Serve listens on the socket, which only root may open, until ctx ends. A socket that an agent which is gone has left
// is replaced; one that answers is not.
func (a *API) Serve(ctx context.Context, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("listen for tools: %w", err)
	}
	if conn, err := net.Dial("unix", path); err == nil {
		return errors.Join(fmt.Errorf("listen for tools: %s is another agent's; use --instance", path), conn.Close())
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("listen for tools: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("listen for tools: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return errors.Join(fmt.Errorf("listen for tools: %w", err), listener.Close())
	}
	server := &http.Server{Handler: a.routes(), ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve tools: %w", err)
	}
	return nil
}

func (a *API) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", a.answer(a.status))
	mux.HandleFunc("GET /v1/problems", a.answer(func(*http.Request, View) (Answer, error) {
		return Answer{Problems: a.problems()}, nil
	}))
	mux.HandleFunc("GET /v1/endpoints", a.answer(func(_ *http.Request, v View) (Answer, error) {
		return Answer{Endpoints: endpointRows(v.Graph, a.BPF)}, nil
	}))
	mux.HandleFunc("GET /v1/policies", a.answer(func(_ *http.Request, v View) (Answer, error) {
		return Answer{Policies: policyRows(v.Graph)}, nil
	}))
	mux.HandleFunc("GET /v1/sets", a.answer(func(_ *http.Request, v View) (Answer, error) {
		return Answer{Sets: setRows(v.Graph, a.BPF)}, nil
	}))
	mux.HandleFunc("GET /v1/rules", a.answer(func(r *http.Request, v View) (Answer, error) {
		rows, err := ruleRows(v.Graph, a.BPF, ParseEndpoint(r.FormValue("endpoint")))
		return Answer{Rules: rows}, err
	}))
	mux.HandleFunc("GET /v1/explain", a.explain)
	return mux
}

// Answer is what the socket answers; the field asked for is filled in, or Error.
type Answer struct {
	Status      *StatusReport `json:"status,omitempty"`
	Endpoints   []EndpointRow `json:"endpoints,omitempty"`
	Policies    []PolicyRow   `json:"policies,omitempty"`
	Rules       []RuleRow     `json:"rules,omitempty"`
	Sets        []SetRow      `json:"sets,omitempty"`
	Problems    []ProblemRow  `json:"problems,omitempty"`
	Explanation *Explanation  `json:"explanation,omitempty"`
	Error       string        `json:"error,omitempty"`
}

// answer runs ask between two batches of the loop.
func (a *API) answer(ask func(*http.Request, View) (Answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var answer Answer
		var askErr error
		err := a.Loop.Query(r.Context(), func(v View) { answer, askErr = ask(r, v) })
		write(w, answer, errors.Join(err, askErr))
	}
}

// explain copies the state out of the loop and works on the copy: it may take a while in a large cluster.
func (a *API) explain(w http.ResponseWriter, r *http.Request) {
	request, err := explain.ParseDestination(r.FormValue("dst"))
	if err != nil {
		write(w, Answer{}, err)
		return
	}
	request.Src = r.FormValue("src")
	request.IPv6 = request.IPv6 || r.FormValue("ipv6") == "true"
	var updates []model.Update
	if err := a.Loop.Query(r.Context(), func(v View) { updates = v.Updates() }); err != nil {
		write(w, Answer{}, err)
		return
	}
	explanation, err := Explain(updates, request)
	write(w, Answer{Explanation: explanation}, err)
}

func write(w http.ResponseWriter, answer Answer, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		answer = Answer{Error: err.Error()}
		w.WriteHeader(http.StatusUnprocessableEntity)
	}
	// The client is gone if this fails; there is nobody to tell.
	_ = json.NewEncoder(w).Encode(answer)
}

func (a *API) status(_ *http.Request, v View) (Answer, error) {
	return Answer{Status: &StatusReport{
		Status: a.Loop.Status(), Node: a.Node, Dataplane: "bpf", Version: a.Version, Started: a.Started,
		Endpoints: len(v.Graph.LocalEndpoints()), Problems: len(a.problems()),
	}}, nil
}

func (a *API) problems() []ProblemRow {
	rows := []ProblemRow{}
	for _, p := range a.Problems() {
		rows = append(rows, ProblemRow{Severity: p.Severity.String(), Object: p.Ref.String(), Reason: p.Reason})
	}
	return rows
}

// ParseEndpoint reads "namespace/name"; without a namespace it is "default".
func ParseEndpoint(text string) model.EndpointID {
	ns, name, ok := strings.Cut(text, "/")
	if !ok {
		return model.EndpointID{Namespace: "default", Name: text}
	}
	return model.EndpointID{Namespace: ns, Name: name}
}
