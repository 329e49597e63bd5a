package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/validate"
)

// apiServer is an API server in memory: lists, streamed lists, watches and discovery, with history, and with faults
// that can be switched. It knows no time but what its clients ask for, so it can be used in a bubble of synctest.
type apiServer struct {
	t        *testing.T
	accept   chan net.Conn
	mu       sync.Mutex
	version  int
	kinds    map[string]*servedKind // by path
	down     bool                   // connections are refused
	refusals int                    // connections that were
	ready    int                    // status of /readyz
	requests []string               // method-less, in order: path?query
	conns    map[net.Conn]struct{}
}

// servedKind is one resource of the server.
type servedKind struct {
	apiVersion, kind string
	objects          map[string]manifestMap
	history          []historyEntry
	floor            int           // what happened up to this version is forgotten
	changed          chan struct{} // closed and made anew with every change
	cut              chan struct{} // closed and made anew to end all watches

	absent      bool   // not served
	status      int    // of every answer; 0: works
	tierRight   bool   // lists and watches are refused as Calico's API server does without a right to any tier
	tiers       string // policies of other tiers are left out, as for readers with a right to this one; empty: all are served
	tiersAt     string // path of the tiers; policies are left out of tiers that are made after a list or watch has begun; empty: none are
	retryAfter  string // with it
	slow        bool   // no answer
	mute        bool   // watches without an event or an end
	noStreams   bool   // streamed lists are refused
	oldStreams  bool   // and these are taken for watches
	failEvent   int    // watches end with an error event of this code right away
	closeAtOnce bool   // watches end right away
	abort       bool   // connections are broken off instead of answers
	goneEarly   bool   // forgotten history is said with the status of the answer, not with an event
	discovery   int    // status of the list of the group's resources; 0: works
}

type manifestMap = map[string]any

type historyEntry struct {
	version int
	typ     string
	object  manifestMap
}

const (
	podsPath       = "/api/v1/pods"
	namespacesPath = "/api/v1/namespaces"
	nodesPath      = "/api/v1/nodes"
	servicesPath   = "/api/v1/services"
	accountsPath   = "/api/v1/serviceaccounts"
	slicesPath     = "/apis/discovery.k8s.io/v1/endpointslices"
	policiesPath   = "/apis/networking.k8s.io/v1/networkpolicies"
	clusterPath    = "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies"
	felixV1Path    = "/apis/crd.projectcalico.org/v1/felixconfigurations"
	stagedPath     = "/apis/crd.projectcalico.org/v1/stagednetworkpolicies"
	felixV3Path    = "/apis/projectcalico.org/v3/felixconfigurations"
)

// newAPIServer starts a server without objects that serves what a cluster without Calico serves.
func newAPIServer(t *testing.T) *apiServer {
	a := &apiServer{t: t, accept: make(chan net.Conn), kinds: map[string]*servedKind{}, ready: 200, version: 100, conns: map[net.Conn]struct{}{}}
	for _, k := range kinds.Served(validate.Pods{}) {
		for _, gvr := range k.GroupVersionResources() {
			path := "/apis/" + gvr.Group + "/" + gvr.Version + "/" + gvr.Resource
			if gvr.Group == "" {
				path = "/api/" + gvr.Version + "/" + gvr.Resource
			}
			a.kinds[path] = &servedKind{apiVersion: gvr.GroupVersion().String(), kind: k.Name, objects: map[string]manifestMap{}, floor: 1,
				changed: make(chan struct{}), cut: make(chan struct{}), absent: len(k.Versions) > 1}
		}
	}
	server := &http.Server{Handler: a}
	listener := &pipeListener{accept: a.accept, closed: make(chan struct{})}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-stopped
	})
	return a
}

// pipeListener gives a server the ends of pipes.
type pipeListener struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// dial connects a client.
func (a *apiServer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	a.mu.Lock()
	down := a.down
	if down {
		a.refusals++
	}
	a.mu.Unlock()
	if down {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	ours, theirs := net.Pipe()
	select {
	case a.accept <- theirs:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conns[theirs] = struct{}{}
	return ours, nil
}

// stop makes the server refuse connections and breaks those there are. start undoes it.
func (a *apiServer) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = true
	for c := range a.conns {
		_ = c.Close()
	}
	clear(a.conns)
}

func (a *apiServer) start() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = false
}

// readiness sets the status of /readyz.
func (a *apiServer) readiness(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready = status
}

// refused returns how many connections were refused since the last call with reset.
func (a *apiServer) refused(reset bool) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.refusals
	if reset {
		a.refusals = 0
	}
	return n
}

// set changes how a kind behaves.
func (a *apiServer) set(path string, change func(*servedKind)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(a.kinds[path])
}

// cut ends the watches of a kind.
func (a *apiServer) cut(path string) {
	a.set(path, func(k *servedKind) {
		close(k.cut)
		k.cut = make(chan struct{})
	})
}

// compact forgets history.
func (a *apiServer) compact(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version += 10
	k := a.kinds[path]
	k.floor, k.history = a.version, nil
}

// restore makes the server's version a lower one, and forgets all history.
func (a *apiServer) restore(version int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version = version
	for _, k := range a.kinds {
		k.floor, k.history = 1, nil
	}
}

// lose has an object gone without a trace.
func (a *apiServer) lose(path, name string) {
	a.set(path, func(k *servedKind) { delete(k.objects, name) })
}

// put creates or changes an object; its metadata names it.
func (a *apiServer) put(path, object string) {
	a.t.Helper()
	var o manifestMap
	if err := json.Unmarshal([]byte(object), &o); err != nil {
		a.t.Fatalf("%s: %v", object, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.kinds[path]
	a.version++
	meta := o["metadata"].(manifestMap)
	o["apiVersion"], o["kind"], meta["resourceVersion"] = k.apiVersion, k.kind, strconv.Itoa(a.version)
	name := fmt.Sprint(meta["namespace"], "/", meta["name"])
	typ := "ADDED"
	if k.objects[name] != nil {
		typ = "MODIFIED"
	}
	k.objects[name] = o
	k.happened(historyEntry{a.version, typ, o})
}

// remove deletes an object, "namespace/name" or "<nil>/name".
func (a *apiServer) remove(path, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.kinds[path]
	a.version++
	o := maps.Clone(k.objects[name])
	meta := maps.Clone(o["metadata"].(manifestMap))
	meta["resourceVersion"] = strconv.Itoa(a.version)
	o["metadata"] = meta
	delete(k.objects, name)
	k.happened(historyEntry{a.version, "DELETED", o})
}

// bookmark tells watchers of a kind how far it is, after something happened elsewhere.
func (a *apiServer) bookmark(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version += 5
	k := a.kinds[path]
	k.happened(historyEntry{a.version, "BOOKMARK", manifestMap{"apiVersion": k.apiVersion, "kind": k.kind,
		"metadata": manifestMap{"resourceVersion": strconv.Itoa(a.version)}}})
}

func (k *servedKind) happened(e historyEntry) {
	k.history = append(k.history, e)
	close(k.changed)
	k.changed = make(chan struct{})
}

// seen returns the requests for a path, empty for all, since the last call with reset.
func (a *apiServer) seen(path string, reset bool) (requests []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.requests {
		if path == "" || strings.HasPrefix(r, path+"?") || r == path {
			requests = append(requests, r)
		}
	}
	if reset {
		a.requests = nil
	}
	return requests
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	q.Del("timeoutSeconds")
	a.mu.Lock()
	request := r.URL.Path
	if r.URL.RawQuery != "" {
		request += "?" + q.Encode()
	}
	a.requests = append(a.requests, request)
	k, ready := a.kinds[r.URL.Path], a.ready
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/readyz":
		w.WriteHeader(ready)
	case k == nil:
		a.discover(w, r.URL.Path)
	default:
		a.serve(w, r, k, r.URL.Query())
	}
}

// discover answers what is served.
func (a *apiServer) discover(w http.ResponseWriter, path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	groups, resources := []manifestMap{}, []manifestMap{}
	for at, k := range a.kinds {
		group, version, ok := strings.Cut(k.apiVersion, "/")
		if !ok || k.absent {
			continue
		}
		v := []manifestMap{{"groupVersion": k.apiVersion, "version": version}}
		groups = append(groups, manifestMap{"name": group, "versions": v})
		if path == "/apis/"+k.apiVersion {
			if k.discovery != 0 {
				refuse(w, k.discovery, "ServiceUnavailable", 0, "no endpoints")
				return
			}
			resources = append(resources, manifestMap{"name": at[strings.LastIndexByte(at, '/')+1:], "kind": k.kind})
		}
	}
	switch {
	case path == "/apis":
		reply(w, manifestMap{"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
	case len(resources) > 0:
		reply(w, manifestMap{"kind": "APIResourceList", "apiVersion": "v1", "resources": resources})
	default:
		refuse(w, 404, "NotFound", 0, "the server could not find the requested resource")
	}
}

func (a *apiServer) serve(w http.ResponseWriter, r *http.Request, k *servedKind, q url.Values) {
	a.mu.Lock()
	now := *k
	a.mu.Unlock()
	streamed := q.Get("sendInitialEvents") == "true"
	switch {
	case now.abort:
		panic(http.ErrAbortHandler)
	case now.slow:
		<-r.Context().Done()
	case now.absent:
		refuse(w, 404, "NotFound", 0, "the server could not find the requested resource")
	case now.status != 0:
		if now.retryAfter != "" {
			w.Header().Set("Retry-After", now.retryAfter)
		}
		reason := map[int]string{403: "Forbidden", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}[now.status]
		seconds, _ := strconv.Atoi(now.retryAfter)
		refuse(w, now.status, reason, seconds, `pods is forbidden: User "margay" cannot list resource "pods" in API group "" at the cluster scope`)
	case now.tierRight:
		group, _, _ := strings.Cut(now.apiVersion, "/")
		refuse(w, 403, "Forbidden", 0, path.Base(r.URL.Path)+"."+group+" is forbidden: Operation on Calico tiered policy is forbidden")
	case streamed && now.noStreams:
		refuse(w, 422, "Invalid", 0, "sendInitialEvents: Forbidden")
	case q.Get("watch") != "" && !streamed && now.goneEarly && q.Get("resourceVersion") < strconv.Itoa(now.floor):
		refuse(w, 410, "Expired", 0, "too old resource version")
	case q.Get("watch") != "":
		a.watch(w, r, k, q, streamed && !now.oldStreams)
	default:
		a.list(w, k)
	}
}

// served is what of a kind is in a list or watch that begins now.
func (a *apiServer) served(k *servedKind) func(manifestMap) bool {
	tiers, all := map[string]bool{"default": true}, k.tiersAt == ""
	if !all {
		for _, o := range a.kinds[k.tiersAt].objects {
			tiers[fmt.Sprint(o["metadata"].(manifestMap)["name"])] = true
		}
	}
	return func(o manifestMap) bool { return all || tiers[fmt.Sprint(tierOf(o))] }
}

func refuse(w http.ResponseWriter, status int, reason string, retryAfter int, message string) {
	w.WriteHeader(status)
	answer := failureStatus(status, reason, message)
	answer["details"] = manifestMap{"retryAfterSeconds": retryAfter}
	reply(w, answer)
}

func failureStatus(status int, reason, message string) manifestMap {
	return manifestMap{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "reason": reason, "message": message}
}

func reply(w http.ResponseWriter, object manifestMap) {
	text, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	_, _ = w.Write(append(text, '\n'))
	w.(http.Flusher).Flush()
}

// all returns the objects in order of their names.
func (k *servedKind) all() []manifestMap {
	items := []manifestMap{}
	for _, name := range slices.Sorted(maps.Keys(k.objects)) {
		if o := k.objects[name]; k.tiers == "" || tierOf(o) == k.tiers {
			items = append(items, o)
		}
	}
	return items
}

// tierOf is the tier of a policy.
func tierOf(o manifestMap) any {
	if spec, ok := o["spec"].(manifestMap); ok && spec["tier"] != nil {
		return spec["tier"]
	}
	return "default"
}

func (a *apiServer) list(w http.ResponseWriter, k *servedKind) {
	a.mu.Lock()
	defer a.mu.Unlock()
	reply(w, manifestMap{"apiVersion": k.apiVersion, "kind": k.kind + "List",
		"metadata": manifestMap{"resourceVersion": strconv.Itoa(a.version)}, "items": slices.DeleteFunc(k.all(), func(o manifestMap) bool { return !a.served(k)(o) })})
}

// watch follows the history from the version asked for until the client, its time limit or cut ends it.
func (a *apiServer) watch(w http.ResponseWriter, r *http.Request, k *servedKind, q url.Values, streamed bool) {
	at, _ := strconv.Atoi(q.Get("resourceVersion"))
	seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
	limit := time.NewTimer(time.Duration(seconds) * time.Second)
	defer limit.Stop()
	a.mu.Lock()
	first, floor, cut, code, end := k.all(), k.floor, k.cut, k.failEvent, a.version
	closeAtOnce, mute := k.closeAtOnce, k.mute
	served := a.served(k)
	a.mu.Unlock()
	w.WriteHeader(200)
	w.(http.Flusher).Flush()
	switch {
	case mute:
		<-r.Context().Done()
		return
	case closeAtOnce:
		return
	case code != 0:
		reply(w, manifestMap{"type": "ERROR", "object": failureStatus(code, "InternalError", "etcd is on fire")})
		return
	case at != 0 && at < floor && !streamed:
		reply(w, manifestMap{"type": "ERROR", "object": failureStatus(410, "Expired", "too old resource version")})
		return
	case at == 0 || streamed:
		for _, o := range slices.DeleteFunc(first, func(o manifestMap) bool { return !served(o) }) {
			reply(w, manifestMap{"type": "ADDED", "object": o})
		}
		at = end
	}
	if streamed {
		reply(w, manifestMap{"type": "BOOKMARK", "object": manifestMap{"apiVersion": k.apiVersion, "kind": k.kind, "metadata": manifestMap{
			"resourceVersion": strconv.Itoa(end), "annotations": manifestMap{"k8s.io/initial-events-end": "true"}}}})
	}
	for {
		a.mu.Lock()
		changed, history := k.changed, slices.Clone(k.history)
		a.mu.Unlock()
		for _, e := range history {
			if e.version > at {
				if at = e.version; served(e.object) {
					reply(w, manifestMap{"type": e.typ, "object": e.object})
				}
			}
		}
		select {
		case <-changed:
		case <-cut:
			return
		case <-limit.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}
