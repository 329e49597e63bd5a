package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apitypes "k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/margay-project/margay/pkg/validate"
)

// server is an API server to several reporters, within a bubble.
type server struct {
	t        *testing.T
	client   *dynamicfake.FakeDynamicClient
	metadata *metadatafake.FakeMetadataClient
}

func newServer(t *testing.T) *server {
	scheme, types := runtime.NewScheme(), runtime.NewScheme()
	for _, err := range []error{metav1.AddMetaToScheme(scheme), eventsv1.AddToScheme(types)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	object := func(apiVersion, kind, namespace, name string) runtime.Object {
		return &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: apiVersion, Kind: kind},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: apitypes.UID("uid-of-" + name), Generation: 1},
		}
	}
	return &server{t: t, client: dynamicfake.NewSimpleDynamicClient(types), metadata: metadatafake.NewSimpleMetadataClient(scheme,
		object("networking.k8s.io/v1", "NetworkPolicy", "shop", "db"),
		object("networking.k8s.io/v1", "NetworkPolicy", "shop", "web"),
		object("networking.k8s.io/v1", "NetworkPolicy", "evil", "p"),
		object("v1", "Pod", "shop", "web"),
		object("v1", "Node", "", "a"),
		object("projectcalico.org/v3", "FelixConfiguration", "", "default"),
	)}
}

// reporter is one that runs.
type reporter struct {
	*Reporter
	log  *lines
	stop func() // and wait until it has ended
}

func (s *server) start(node string) *reporter {
	r := &reporter{log: &lines{}}
	r.Reporter = New(Options{Node: node, Objects: s.client, Metadata: s.metadata,
		Log: slog.New(slog.NewTextHandler(r.log, nil))})
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Errorf("Run returned %v", err)
		}
	}
	return r
}

// events returns those that are there.
func (s *server) events() []eventsv1.Event {
	s.t.Helper()
	list, err := s.client.Resource(eventResource).List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	events := make([]eventsv1.Event, len(list.Items))
	for i, item := range list.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &events[i]); err != nil {
			s.t.Fatal(err)
		}
	}
	return events
}

// calls counts those made so far, as "create events", "get pods".
func (s *server) calls(what string) (n int) {
	for _, a := range s.client.Actions() {
		if a.GetVerb()+" "+a.GetResource().Resource == what {
			n++
		}
	}
	return n
}

// fail makes calls fail while when returns an error.
func (s *server) fail(verb, resource string, when func(a clienttesting.Action) error) {
	f := func(a clienttesting.Action) (bool, runtime.Object, error) {
		err := when(a)
		return err != nil, nil, err
	}
	s.client.PrependReactor(verb, resource, f)
	s.metadata.PrependReactor(verb, resource, f)
}

func forbidden(a clienttesting.Action) error {
	return apierrors.NewForbidden(a.GetResource().GroupResource(), "", fmt.Errorf("cannot %s in the namespace %q", a.GetVerb(), a.GetNamespace()))
}

// lines is a log that may be read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) want(t *testing.T, n int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if got := strings.Count(l.text.String(), "\n"); got != n {
		t.Errorf("%d lines logged, want %d:\n%s", got, n, l.text.String())
	}
}

// after lets time pass in the bubble.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

var rejected = problem("db", validate.Rejected, "spec.podSelector", "wrong")

func TestARejectedObjectsOwnerIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		r := s.start("a")
		defer r.stop()
		began := time.Now()
		r.Report(slices.Values([]Item{rejected, problem("Node a", validate.Rejected, "", "odd")}), 1)
		after(spread(1, 2))
		got := s.events()
		if len(got) != 2 {
			t.Fatalf("%d events, want 2", len(got))
		}
		e := got[0]
		if e.Regarding.Kind == "Node" {
			e = got[1]
		}
		if at := e.EventTime.Time; at.Before(began) || at.After(time.Now()) {
			t.Errorf("event of %v", at)
		}
		if !strings.HasPrefix(e.Name, "db.") {
			t.Errorf("name %q", e.Name)
		}
		e.Name, e.EventTime = "", metav1.MicroTime{}
		want := eventsv1.Event{
			TypeMeta:            metav1.TypeMeta{APIVersion: "events.k8s.io/v1", Kind: "Event"},
			ObjectMeta:          metav1.ObjectMeta{Namespace: "shop"},
			ReportingController: "margay", ReportingInstance: "a", Type: "Warning", Reason: "PolicyRejected", Action: "Validate",
			Note: "not used: spec.podSelector: wrong",
			Regarding: corev1.ObjectReference{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy", Namespace: "shop", Name: "db",
				UID: "uid-of-db"},
		}
		if diff := cmp.Diff(want, e); diff != "" {
			t.Error(diff)
		}
		for _, e := range got {
			if e.Regarding.Kind == "Node" && (e.Namespace != "default" || e.Regarding.Namespace != "") {
				t.Errorf("the event on a node is in %q, regarding namespace %q", e.Namespace, e.Regarding.Namespace)
			}
		}
		if st := r.Status(); st != (Status{Subjects: 2, Sent: 2}) {
			t.Errorf("status %+v", st)
		}
		r.log.want(t, 0)
	})
}

// All nodes of a small cluster report, and the API server keeps one event.
func TestTheServerKeepsTheFirstOfEqualEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		var all []*reporter
		for _, node := range []string{"a", "b", "c"} {
			r := s.start(node)
			r.Report(slices.Values([]Item{rejected}), 3)
			all = append(all, r)
		}
		after(time.Minute)
		if got := s.events(); len(got) != 1 || s.calls("create events") != 3 {
			t.Errorf("%d events after %d attempts, want one after 3", len(got), s.calls("create events"))
		}
		for _, r := range all {
			if st := r.Status(); st != (Status{Subjects: 1, Sent: 1}) {
				t.Errorf("status %+v: what is there already is as good", st)
			}
			r.log.want(t, 0)
		}
		all[0].stop()
		all[1].Report(slices.Values([]Item{rejected, problem("web", validate.Rejected, "", "wrong too")}), 3)
		all[2].Report(slices.Values([]Item{rejected, problem("web", validate.Rejected, "", "wrong too")}), 3)
		after(time.Minute)
		if got := s.events(); len(got) != 2 {
			t.Errorf("%d events without one of the nodes, want 2", len(got))
		}
		all[1].stop()
		all[2].stop()
	})
}

func TestNothingIsAskedWithNothingToTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		r := s.start("a")
		defer r.stop()
		after(time.Hour)
		r.Report(slices.Values([]Item{rejected}), 1)
		after(10 * time.Minute)
		r.Report(slices.Values([]Item(nil)), 1)
		after(24 * time.Hour)
		if n := len(s.client.Actions()); n != 1 {
			t.Errorf("%d calls, want the one that writes the event", n)
		}
	})
}

func TestEachNodeTellsOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		r := s.start("a")
		defer r.stop()
		r.Report(slices.Values([]Item{local(problem("Pod web", validate.Rejected, "", "table too large"))}), 5000)
		after(localAfter)
		got := s.events()
		if len(got) != 1 || got[0].Reason != ReasonNotEnforced || got[0].Action != "Enforce" || got[0].Regarding.UID != "uid-of-web" {
			t.Errorf("events %v", got)
		}
	})
}

func TestObjectsAreFoundInTheGroupTheClusterHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		r := s.start("a")
		defer r.stop()
		r.Report(slices.Values([]Item{problem("FelixConfiguration default", validate.Rejected, "spec", "wrong")}), 1)
		after(time.Minute)
		got := s.events()
		if len(got) != 1 || got[0].Regarding.APIVersion != "projectcalico.org/v3" || got[0].Regarding.UID != "uid-of-default" {
			t.Errorf("events %v", got)
		}
	})
}

func TestASecondAgentAddsNothingToWhatWasSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		for range 3 { // restarts
			r := s.start("a")
			r.Report(slices.Values([]Item{rejected}), 1)
			after(time.Minute)
			if st := r.Status(); st.Sent != 1 || st.Failed != 0 {
				t.Errorf("status %+v", st)
			}
			r.stop()
		}
		if got := s.events(); len(got) != 1 {
			t.Errorf("%d events, want 1", len(got))
		}
	})
}

func TestWhatIsForbiddenIsLoggedOnceAndLeftAlone(t *testing.T) {
	for _, tc := range []struct{ verb, resource, call string }{
		{"create", "events", "create events"},
	} {
		t.Run(tc.call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				var allowed atomic.Bool
				s.fail(tc.verb, tc.resource, func(a clienttesting.Action) error {
					if !allowed.Load() {
						return forbidden(a)
					}
					return nil
				})
				r := s.start("a")
				defer r.stop()
				for range 24 * 60 {
					r.Report(slices.Values([]Item{rejected, problem("web", validate.Rejected, "", "wrong")}), 1)
					after(time.Minute)
				}
				r.log.want(t, 1)
				if n := s.calls(tc.call); n < 24 || n > 48 {
					t.Errorf("%d calls in a day, want some that would find that it is allowed by now", n)
				}
				if st := r.Status(); st.Error == "" {
					t.Errorf("status %+v, want an error", st)
				}
				allowed.Store(true)
				after(2 * deniedFor)
				if n := len(s.events()); n != 2 {
					t.Errorf("%d events once it is allowed, want 2", n)
				}
			})
		})
	}
}

// A tenant can forbid events in its namespaces, by a ResourceQuota of none for example.
func TestANamespaceWithoutRoomForEventsConcernsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.fail("create", "events", func(a clienttesting.Action) error {
			if a.GetNamespace() != "evil" {
				return nil
			}
			return apierrors.NewForbidden(schema.GroupResource{Group: "events.k8s.io", Resource: "events"}, "", errors.New("exceeded quota: none"))
		})
		r := s.start("a")
		defer r.stop()
		evil := problem("p", validate.Rejected, "", "wrong")
		evil.Problem.Ref.Namespace = "evil"
		r.Report(slices.Values([]Item{evil}), 1)
		after(5 * time.Minute)
		if n := s.calls("create events"); n != 1 {
			t.Fatalf("%d attempts in the tenant's namespace, want 1", n)
		}
		r.Report(slices.Values([]Item{evil, rejected}), 1)
		after(5 * time.Minute)
		if n := len(s.events()); n != 1 {
			t.Errorf("%d events about an object of another namespace, want 1", n)
		}
	})
}

func TestWithoutLeaveToReadObjectsEventsLackTheirUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.fail("get", "networkpolicies", forbidden)
		r := s.start("a")
		defer r.stop()
		r.Report(slices.Values([]Item{rejected, problem("web", validate.Rejected, "", "wrong")}), 1)
		after(time.Hour)
		got := s.events()
		if len(got) != 2 || got[0].Regarding.UID != "" || got[0].Regarding.APIVersion != "networking.k8s.io/v1" {
			t.Errorf("events %v", got)
		}
		r.log.want(t, 1)
		if r.Status().Error == "" {
			t.Error("the status does not tell")
		}
		r.Report(slices.Values([]Item(nil)), 1)
		after(0)
		if st := r.Status(); st.Error != "" {
			t.Errorf("with nothing to tell any more: status %+v", st)
		}
	})
}

func TestNothingIsSaidOfObjectsThatAreGoneOrGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.fail("create", "events", func(a clienttesting.Action) error {
			if a.GetNamespace() != "shop" {
				return nil
			}
			err := apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("it is being terminated"))
			err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
			return err
		})
		r := s.start("a")
		defer r.stop()
		r.Report(slices.Values([]Item{problem("never", validate.Rejected, "", "wrong"), rejected, problem("Node a", validate.Rejected, "", "odd")}), 1)
		after(time.Minute)
		if got := s.events(); len(got) != 1 || got[0].Regarding.Kind != "Node" {
			t.Errorf("events %v, want the node's", got)
		}
		if n := s.calls("create events"); n != 2 {
			t.Errorf("%d attempts, want 2", n)
		}
		r.log.want(t, 0)
	})
}

func TestAnOutageIsSurvived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		var up atomic.Bool
		s.fail("*", "*", func(clienttesting.Action) error {
			if !up.Load() {
				return errors.New("connection refused")
			}
			return nil
		})
		r := s.start("a")
		defer r.stop()
		r.Report(slices.Values([]Item{rejected, local(problem("Pod web", validate.Rejected, "", "wrong"))}), 1)
		after(repeatAfter - 2*lastRetry)
		r.log.want(t, 2) // of the policy and of the pod
		up.Store(true)
		after(lastRetry)
		if got := s.events(); len(got) != 2 {
			t.Errorf("%d events, want both", len(got))
		}
		if st := r.Status(); st.Error != "" || st.Sent != 2 {
			t.Errorf("status %+v", st)
		}
	})
}

// A list that takes long to read is read rarely, and the last one is read in the end.
func TestAListThatTakesLongIsReadRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		r := s.start("a")
		defer r.stop()
		var reads atomic.Int32
		slow := func(items ...Item) func(func(Item) bool) {
			return func(yield func(Item) bool) {
				reads.Add(1)
				time.Sleep(300 * time.Millisecond) // of the two times
				slices.Values(items)(yield)
			}
		}
		rejected := validate.Problem{Ref: validate.Ref{Kind: "NetworkPolicy", Namespace: "shop", Name: "db"}, Severity: validate.Rejected, Reason: "bad"}
		for range 300 {
			r.Report(slow(), 1)
			after(2 * time.Second)
		}
		r.Report(slow(Item{Problem: rejected}), 1)
		if n := reads.Load() / 2; n < 10 || n > 25 {
			t.Errorf("%d lists were read in ten minutes", n)
		}
		after(2 * time.Minute)
		if got := s.events(); len(got) != 1 {
			t.Errorf("events %v", got)
		}
	})
}
