package etcd

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
)

// watchServer answers each watch with the same messages: as a server of etcd does, in fragments only if it is asked for them.
type watchServer struct {
	etcdserverpb.UnimplementedWatchServer
	fragments []*etcdserverpb.WatchResponse
}

func (s *watchServer) Watch(w etcdserverpb.Watch_WatchServer) error {
	request, err := w.Recv()
	if err != nil {
		return err
	}
	header := &etcdserverpb.ResponseHeader{ClusterId: 1, Revision: 9}
	messages := []*etcdserverpb.WatchResponse{{Header: header, Created: true}}
	whole := &etcdserverpb.WatchResponse{Header: header}
	for i, f := range s.fragments {
		whole.Events = append(whole.Events, f.Events...)
		f.Header, f.Fragment = header, i < len(s.fragments)-1
	}
	if request.GetCreateRequest().Fragment {
		messages = append(messages, s.fragments...)
	} else {
		messages = append(messages, whole)
	}
	for _, m := range messages {
		if err := w.Send(m); err != nil {
			return err
		}
	}
	<-w.Context().Done()
	return nil
}

// watching returns a watch of a server that sends the fragments.
func watching(t *testing.T, fragments ...*etcdserverpb.WatchResponse) stream {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	etcdserverpb.RegisterWatchServer(server, &watchServer{fragments: fragments})
	go func() { _ = server.Serve(listener) }() // ends with Stop
	t.Cleanup(server.Stop)
	o := Options{Endpoints: []string{"http://" + listener.Addr().String()}, DialTimeout: 10 * time.Second, KeepAlive: time.Minute}
	c, err := o.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	w, err := c.watch(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// changesOf makes a message with a change for each revision, of a key and that many bytes.
func changesOf(size int, revisions ...int64) *etcdserverpb.WatchResponse {
	m := &etcdserverpb.WatchResponse{}
	for _, r := range revisions {
		kv := &mvccpb.KeyValue{Key: fmt.Appendf(nil, "%snetworksets/a/%d", root, r), Value: bytes.Repeat([]byte("x"), size), CreateRevision: r, ModRevision: r}
		m.Events = append(m.Events, &mvccpb.Event{Kv: kv})
	}
	return m
}

// answers reads until so many events have come, and returns the revisions of each answer that has any.
func answers(t *testing.T, w stream, events int) (all [][]int64) {
	t.Helper()
	for n := 0; n < events; {
		a, err := w.next()
		if err != nil {
			t.Fatal(err)
		}
		var revisions []int64
		for _, e := range a.events {
			revisions = append(revisions, e.modified)
		}
		if n += len(revisions); len(revisions) > 0 {
			all = append(all, revisions)
		}
	}
	return all
}

// A tenant that writes large objects faster than agents list everything must not keep them from following: a watch that begins behind
// these writes gets all of them at once.
func TestAWatchGetsMoreThanOneMessageHolds(t *testing.T) {
	const each = maxMessage / 8
	var fragments []*etcdserverpb.WatchResponse
	var want []int64
	for r := int64(1); r <= 9; r++ {
		fragments, want = append(fragments, changesOf(each, r)), append(want, r)
	}
	if got := slices.Concat(answers(t, watching(t, fragments...), len(want))...); !slices.Equal(got, want) {
		t.Errorf("got revisions %v, want %v", got, want)
	}
}

func TestARevisionInFragmentsIsOneChange(t *testing.T) {
	w := watching(t, changesOf(1, 2, 3, 3), changesOf(1, 3), changesOf(1, 3, 4), changesOf(1, 5))
	got, want := fmt.Sprint(answers(t, w, 7)), "[[2] [3 3 3 3] [4 5]]"
	if got != want {
		t.Errorf("got answers with revisions %s, want %s", got, want)
	}
}
