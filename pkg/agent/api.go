package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/flows"
	"github.com/margay-project/margay/pkg/health"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/inspect/rows"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// Reports describe the datastore besides its objects. For a Loop, pass its Reports.
type Reports interface {
	Problems() []validate.Problem
	All() iter.Seq[validate.Problem]
	Kinds() []syncer.KindStatus
}

// API answers tools on the agent's unix socket (package inspect), and metrics. It reads, and changes nothing.
type API struct {
	Loop     *Loop
	Health   *health.Aggregate
	Plane    inspect.Dataplane
	Chosen   inspect.Choice // why it is this dataplane
	Flows    *flows.Hub     // nil: no records of flows
	Verifier *Verifier      // nil: the dataplane has nothing that could be verified
	Reports  Reports
	// Overtaken are the interfaces where programs of others run before ours; nil: there can be none.
	Overtaken func() map[uint32]bool
	Node      string
	Version   string
	Started   time.Time
}

// answerWithin is how long an answer may take once the agent stops.
const answerWithin = 2 * time.Second

// Serve listens on the socket, which only root may open, until ctx ends. A socket that an agent which is gone has left
// is replaced; one that may still have an owner is not, and no other file.
func (a *API) Serve(ctx context.Context, path string) error {
	return a.serve(ctx, path, lookAtSocketEvery)
}

// lookAtSocketEvery is how often Serve looks whether tools still find the socket.
const lookAtSocketEvery = 10 * time.Second

// serve is Serve, which ends with an error if somebody has removed or replaced the file of the socket: no tool finds it any more.
func (a *API) serve(ctx context.Context, path string, every time.Duration) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("listen for tools: %w", err)
	}
	if _, err := inspect.RemoveLeftSocket(path); err != nil {
		return fmt.Errorf("listen for tools: %w", err)
	}
	listener, err := (&net.ListenConfig{Control: rootOnly}).Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("listen for tools: %w", err)
	}
	var answering sync.RWMutex // held for reading by each answer in the making
	routes := a.routes()
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if answering.TryRLock() { // otherwise stopping
				defer answering.RUnlock()
				routes.ServeHTTP(w, r)
			}
		})}
	lost := make(chan error, 1)
	watched, unwatch := context.WithCancel(ctx)
	defer unwatch()
	go func() {
		if err := lostSocket(watched, path, every); err != nil {
			lost <- err
			listener.(*net.UnixListener).SetUnlinkOnClose(false) // the path may be another agent's by now
			server.Close()
		}
	}()
	stopped := make(chan struct{})
	stay := context.AfterFunc(ctx, func() {
		defer close(stopped)
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
		defer cancel()
		if server.Shutdown(limit) != nil {
			server.Close()
		}
	})
	if err = server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve tools: %w", err)
	}
	err = nil
	select {
	case err = <-lost:
		stay()
	case <-stopped:
	}
	// Answers in the making use what the caller closes next. No one else waits for a query or a client any more, since their
	// contexts and connections have ended; only answers that read the kernel's maps can still be under way.
	answering.Lock() // never unlocked: no further answer begins
	return err
}

// lostSocket waits until the file at path is not the one that is there now, and returns an error then; nil when ctx ends.
func lostSocket(ctx context.Context, path string, every time.Duration) error {
	own, err := os.Lstat(path)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for err == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var now os.FileInfo
		if now, err = os.Lstat(path); err == nil && (now.Mode().Type() != os.ModeSocket || !os.SameFile(own, now) || !own.ModTime().Equal(now.ModTime())) {
			err = errors.New("another file is in its place")
		}
	}
	return fmt.Errorf("the socket %s is not there any more: %w", path, err)
}

// rootOnly sets the mode of a socket that is about to be bound: it has no moment at which others may open it.
func rootOnly(_, _ string, socket syscall.RawConn) error {
	var err error
	return errors.Join(socket.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), 0o600) }), err)
}

func (a *API) routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(path string, answer question) {
		mux.HandleFunc("GET /v1/"+path, func(w http.ResponseWriter, r *http.Request) {
			v, err := answer(r)
			write(w, v, err)
		})
	}
	for path, answer := range map[string]question{"status": a.status, "problems": a.problems, "config": a.config} {
		handle(path, answer)
	}
	for path, answer := range map[string]question{
		"endpoints": a.endpoints,
		"policies":  a.policies,
		"order":     a.order,
		"staged":    a.staged,
		"rules":     a.rules,
		"sets":      a.sets,
		"explain":   a.explain,
		"lint":      a.lint,
		"verify":    a.verify,
	} {
		handle(path, a.ofObjects(answer))
	}
	mux.HandleFunc("GET /v1/flows", a.flows)
	return mux
}

// question answers one request.
type question func(*http.Request) (inspect.Answer, error)

// ofObjects is a question that is answered from the objects of the datastore. Before the first snapshot the agent has none, and the answer
// would deny what is enforced.
func (a *API) ofObjects(answer question) question {
	return func(r *http.Request) (inspect.Answer, error) {
		synced := false
		if err := a.Loop.Query(r.Context(), func(v View) { synced = v.synced }); err != nil {
			return inspect.Answer{}, err
		}
		if !synced {
			return inspect.Answer{}, inspect.ErrNoSnapshot
		}
		return answer(r)
	}
}

func write(w http.ResponseWriter, answer inspect.Answer, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		answer = inspect.Answer{Error: err.Error()}
		status := http.StatusUnprocessableEntity
		if errors.Is(err, inspect.ErrNoSnapshot) {
			status = http.StatusServiceUnavailable
		}
		w.WriteHeader(status)
	}
	// If this fails, the client has gone and cannot be answered.
	_ = json.NewEncoder(w).Encode(answer)
}

func (a *API) status(r *http.Request) (inspect.Answer, error) {
	report := &inspect.StatusReport{
		Agent: inspect.Agent{Node: a.Node, Dataplane: a.Plane.Name(), Chosen: a.Chosen, Version: a.Version, Started: a.Started},
	}
	for range a.Reports.All() {
		report.Problems++
	}
	odd := &calc.Odd{}
	err := a.Loop.Query(r.Context(), func(v View) { // everything else as of one moment: a pass may take seconds
		s := a.Loop.Status()
		report.InSync, report.Ready, report.Kinds = s.InSync, s.Ready, kindRows(a.Reports.Kinds())
		report.Attempts = inspect.Attempts{Applied: s.Applied, TookSeconds: s.Took.Seconds(), Error: s.Error, Held: s.Held, Applies: s.Applies, Failed: s.Failed}
		report.Endpoints, report.Enforced, report.Closed = len(v.Graph.LocalEndpoints()), enforcedOf(v.states), len(v.closed)
		report.Waiting = waitingOf(v.states)
		report.Problems += len(agentProblems(v))
		odd = v.odd()
		if !s.InSync {
			report.Inherited = len(v.dataplane.Ready())
		}
	})
	report.Problems += odd.Len()
	for _, c := range a.Health.Components() {
		if !c.Ready {
			report.NotReady = append(report.NotReady, c.Name+": "+c.Detail)
		}
	}
	report.Ready = report.Ready && len(report.NotReady) == 0
	return inspect.Answer{Status: report}, err
}

// agentProblems are those of the configuration, of endpoints that are held back, and of the node.
func agentProblems(v View) []validate.Problem {
	return slices.Concat(configProblems(v.Settings), heldProblems(v.states), v.node)
}

// config answers with the configuration and the source of each value.
func (a *API) config(r *http.Request) (answer inspect.Answer, err error) {
	err = a.Loop.Query(r.Context(), func(v View) { answer.Config = ConfigRows(v.Settings.Values()) })
	return answer, err
}

func (a *API) problems(r *http.Request) (answer inspect.Answer, err error) {
	var own []validate.Problem
	var odd *calc.Odd
	err = a.Loop.Query(r.Context(), func(v View) { own, odd = agentProblems(v), v.odd() })
	if err == nil { // the loop does not wait for it: tenants may have made very many
		answer.Problems = problemRows(append(a.Reports.Problems(), own...), odd.Problems())
	}
	return answer, err
}

func (a *API) endpoints(r *http.Request) (answer inspect.Answer, err error) {
	var local []*model.EndpointPolicy
	err = a.Loop.Query(r.Context(), func(v View) {
		local = v.Graph.LocalEndpoints()
		answer.Endpoints = append(endpointRows(local, v.Graph, v.states, a.Plane), closedRows(v.closed, local, a.Node)...)
	})
	if err != nil {
		return answer, err
	}
	namePolicies(answer.Endpoints, local)
	return answer, a.Plane.Attachments(answer.Endpoints)
}

func (a *API) policies(r *http.Request) (answer inspect.Answer, err error) {
	var list *rows.PolicyList
	if err = a.Loop.Query(r.Context(), func(v View) { list = rows.ListPolicies(v.Graph) }); err == nil {
		answer.Policies = list.Rows()
	}
	return answer, err
}

// order works on a copy of the objects that concern the pod, as explain does: the query may name any pod of the
// cluster.
func (a *API) order(r *http.Request) (answer inspect.Answer, err error) {
	var pod model.EndpointID
	var part *calc.Part
	var unknown error
	err = a.Loop.Query(r.Context(), func(v View) {
		if pod, unknown = explain.FindPod(v.Graph, r.FormValue("endpoint"), r.FormValue("namespace")); unknown == nil {
			part = v.Graph.Around([]model.EndpointID{pod}, nil)
		}
	})
	if err = errors.Join(err, unknown); err != nil {
		return answer, err
	}
	answer.Order, err = explain.NewState(part.Objects()).Order(pod)
	return answer, err
}

func (a *API) rules(r *http.Request) (answer inspect.Answer, err error) {
	// Reading all counters takes a while, and the loop is not needed for it.
	counts, err := a.Plane.RuleCounts()
	if err != nil {
		return answer, err
	}
	id, known := ParseEndpoint(r.FormValue("endpoint")), false
	err = a.Loop.Query(r.Context(), func(v View) { answer.Rules, known = a.Plane.Rules(id, counts, v.Graph.SetText) })
	if err == nil && !known {
		err = fmt.Errorf("no local endpoint %s; see margay show endpoints", id)
	}
	return answer, err
}

// sets asks for one set at a time, so that enforcement never waits for more than the members of one. Whose the addresses are is as of
// the beginning.
func (a *API) sets(r *http.Request) (answer inspect.Answer, err error) {
	var numbered []numberedSet
	var namespaces map[netip.Addr]string
	ask := func(v View) { numbered, namespaces = setNumbers(a.Plane), v.Graph.NamespacesByAddr() }
	if err := a.Loop.Query(r.Context(), ask); err != nil {
		return answer, err
	}
	answer.Sets = []inspect.SetRow{}
	for _, s := range numbered {
		err := a.Loop.Query(r.Context(), func(v View) { answer.Sets = append(answer.Sets, setRow(v.Graph, a.Plane, s, namespaces)) })
		if err != nil {
			return answer, err
		}
	}
	return answer, nil
}

// explain looks up what the request is about, copies that out of the loop and works on the copy: it may take a while in
// a large cluster.
func (a *API) explain(r *http.Request) (inspect.Answer, error) {
	var request explain.Request
	if err := json.Unmarshal([]byte(r.FormValue("request")), &request); err != nil {
		return inspect.Answer{}, fmt.Errorf("explain: the request cannot be read: %w", err)
	}
	var question *explain.Question
	var part *calc.Part
	var differs []string
	var unknown error
	err := a.Loop.Query(r.Context(), func(v View) {
		request.Rules, request.NodeAddrs = nodeRules(a.Node, v.Settings.Config()), a.Plane.NodeAddrs()
		if question, unknown = explain.Resolve(v.Graph, request); unknown == nil {
			pods, addrs := question.Ends()
			part, differs = v.Graph.Around(pods, addrs), append(notEnforced(v.states, pods, addrs), notYet(v.Graph.AwaitedPods(), pods)...)
		}
	})
	if err = errors.Join(err, unknown); err != nil {
		return inspect.Answer{}, err
	}
	explanation, err := explain.NewState(part.Objects()).Answer(question)
	if err != nil {
		return inspect.Answer{}, err
	}
	explanation.NotEnforced = differs
	return inspect.Answer{Explanation: explanation}, nil
}

// ParseEndpoint reads "namespace/name"; without a namespace it is "default".
func ParseEndpoint(text string) model.EndpointID {
	ns, name, ok := strings.Cut(text, "/")
	if !ok {
		return model.WorkloadID("default", text)
	}
	return model.WorkloadID(ns, name)
}
