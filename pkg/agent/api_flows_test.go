package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/flows"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/syncer"
)

// flowServer is an agent that has nothing but flows.
type flowServer struct {
	hub    *flows.Hub
	client inspect.Client
	stop   func() // the agent, and waits for its end
}

func serveFlows(t *testing.T) *flowServer {
	t.Helper()
	loop := New(complete(t, Options{Source: syncer.NewMemory(), Graph: calc.New("n"), Dataplane: dataplane.NewFake(), Log: slog.New(slog.DiscardHandler)}))
	s := &flowServer{hub: flows.NewHub(16), client: inspect.Client{Socket: filepath.Join(t.TempDir(), "sock")}}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- (&API{Loop: loop, Plane: plane{}, Flows: s.hub}).Serve(ctx, s.client.Socket) }()
	stopped := false
	s.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(s.stop)
	testutil.WaitFor(t, time.Minute, "the socket", func() bool {
		_, err := s.client.Ask(t.Context(), "/v1/nothing", nil)
		return !errors.Is(err, inspect.ErrNotRunning)
	})
	return s
}

func flow(port uint16, verdict string) *flows.Record {
	return &flows.Record{Time: time.Now().UTC(), Endpoint: "t/p", Verdict: verdict,
		Packet: flows.Packet{Dst: netip.AddrPortFrom(netip.IPv6Unspecified(), port)}}
}

// follow subscribes and returns what comes, and how it ends.
func (s *flowServer) follow(t *testing.T, query string) (<-chan inspect.FlowMessage, <-chan error) {
	t.Helper()
	parameters, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	messages, ended := make(chan inspect.FlowMessage, 100), make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		ended <- s.client.Flows(t.Context(), parameters, func(m inspect.FlowMessage) error {
			if m.Begin != nil {
				close(begun)
			}
			messages <- m
			return nil
		})
	}()
	select {
	case <-begun:
	case err := <-ended:
		ended <- err
	}
	return messages, ended
}

func TestFlowsAreSentAsTheyCome(t *testing.T) {
	s := serveFlows(t)
	s.hub.Publish([]*flows.Record{flow(1, flows.Deny)})
	all, allEnded := s.follow(t, "")
	some, _ := s.follow(t, "verdict=deny&port=3&port=1&since=2001-02-03T04:05:06.7Z")
	for _, m := range []inspect.FlowMessage{<-all, <-some} {
		if m.Begin == nil || !m.Begin.From.IsZero() {
			t.Errorf("the first message is %+v", m)
		}
	}
	s.hub.Publish([]*flows.Record{flow(2, flows.Deny), flow(3, flows.Allow)})
	s.hub.Publish([]*flows.Record{flow(3, flows.Deny)})
	want := func(messages <-chan inspect.FlowMessage, ports ...uint16) {
		t.Helper()
		for _, port := range ports {
			if m := <-messages; m.Flow == nil || m.Flow.Dst.Port() != port {
				t.Fatalf("%+v, want the flow to port %d", m.Flow, port)
			}
		}
	}
	want(all, 2, 3, 3)
	want(some, 1, 3)
	s.stop()
	if err := <-allEnded; !errors.Is(err, inspect.ErrEnded) {
		t.Errorf("the stream ended with %v, want %v", err, inspect.ErrEnded)
	}
	if _, ended := s.follow(t, ""); !errors.Is(<-ended, inspect.ErrNotRunning) {
		t.Error("flows of an agent that has stopped")
	}
	if n := s.hub.Subscribers(); n != 0 {
		t.Errorf("%d subscriptions are left", n)
	}
}

func TestFlowsOfAWrongQuestion(t *testing.T) {
	s := serveFlows(t)
	for query, want := range map[string]string{"verdict=x": "want allow or deny", "since=x": "want a time as in"} {
		if _, ended := s.follow(t, query); !strings.Contains((<-ended).Error(), want) {
			t.Errorf("%s: no %q in the answer", query, want)
		}
	}
	_, err := (inspect.Client{Socket: s.client.Socket}).Ask(t.Context(), "/v1/flow", nil)
	if err == nil {
		t.Error("an answer to a question that does not exist")
	}
}

// blocked subscribes and reads nothing more before it is released. It delivers how many records it lost, or that it found
// the agent gone.
func (s *flowServer) blocked(t *testing.T) (release func(), lost <-chan uint64) {
	t.Helper()
	released, begun, result := make(chan struct{}), make(chan struct{}), make(chan uint64, 1)
	go func() {
		n := uint64(0)
		err := s.client.Flows(t.Context(), nil, func(m inspect.FlowMessage) error {
			if m.Begin != nil {
				close(begun)
				<-released
			}
			if n += m.Lost; n > 0 {
				return context.Canceled
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) && !errors.Is(err, inspect.ErrEnded) {
			t.Error(err)
		}
		result <- n
	}()
	<-begun
	return func() { close(released) }, result
}

// A client that reads nothing loses records, and does not keep the agent from publishing, from serving others or from
// stopping.
func TestASlowClientDisturbsNobody(t *testing.T) {
	s := serveFlows(t)
	release, lost := s.blocked(t)
	releaseLate, ended := s.blocked(t)
	fast := s.hub.Subscribe(flows.Filter{}, time.Time{})
	defer fast.Close()
	long := strings.Repeat("x", 1000)
	const records = 5000
	for i := range records {
		r := flow(uint16(i), flows.Allow)
		r.Rule = long
		s.hub.Publish([]*flows.Record{r})
		if list, lost, err := fast.Next(t.Context(), 10); err != nil || lost > 0 || len(list) != 1 {
			t.Fatalf("record %d: %d records, %d lost, %v", i, len(list), lost, err)
		}
	}
	release()
	if n := <-lost; n == 0 || n >= records {
		t.Errorf("the slow client lost %d of %d records", n, records)
	}
	stalls, started := testutil.WatchStalls(t), time.Now()
	s.stop()
	if took := stalls.Since(started); took >= answerWithin {
		t.Errorf("the agent took %v to stop beside a client that reads nothing", took)
	}
	releaseLate()
	<-ended
}
