package echo_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/internal/labtest"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab/echo"
)

func TestStreamCountsEveryAnswer(t *testing.T) {
	n := labtest.Node(t, labtest.New(t), "a")
	client, serving := labtest.Pod(t, n, "client"), labtest.Pod(t, n, "server")
	server := labtest.ListenTCP(t, serving.Host, 80)
	for _, dst := range []netip.AddrPort{server.Addr4(), server.Addr6()} {
		s := labtest.Must[*echo.Stream](t)(echo.StartStream(client.Host, dst, echo.StreamOptions{Interval: time.Millisecond}))
		testutil.WaitFor(t, labtest.Soon, "100 answers", func() bool { return s.Result().Received >= 100 })
		r := s.Stop()
		if r.Sent != r.Received || r.Connects != 1 || r.Errors != 0 || r.LastErr != nil {
			t.Errorf("over an undisturbed connection to %s: %+v", dst, r)
		}
		if d := cmp.Diff(r, s.Stop()); d != "" {
			t.Errorf("a second Stop differs: %s", d)
		}
	}
	if got := server.Accepted(); got != 2 {
		t.Errorf("server accepted %d connections, want 2", got)
	}
}

func TestStreamSeesRetransmissionsAndBrokenConnections(t *testing.T) {
	n := labtest.Node(t, labtest.New(t), "a")
	client, serving := labtest.Pod(t, n, "client"), labtest.Pod(t, n, "server")
	server := labtest.ListenTCP(t, serving.Host, 80)
	s := labtest.Must[*echo.Stream](t)(echo.StartStream(client.Host, server.Addr4(), echo.StreamOptions{Interval: time.Millisecond}))
	allow := labtest.DropTo(t, n, 80)
	resent := s.Result().Retransmits // a busy machine may send again what was not lost
	testutil.WaitFor(t, labtest.Soon, "a retransmission of what is not answered", func() bool {
		r := s.Result()
		return r.Retransmits > resent && r.Received == r.Sent-1
	})
	lost := s.Result().Retransmits
	allow()
	before := s.Result().Received
	testutil.WaitFor(t, labtest.Soon, "the connection to go on", func() bool { return s.Result().Received > before+10 })
	if r := s.Result(); r.Connects != 1 || r.Errors != 0 {
		t.Errorf("after a short loss: %+v", r)
	}

	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	testutil.WaitFor(t, labtest.Soon, "an error", func() bool { return s.Result().Errors > 0 })
	labtest.ListenTCP(t, serving.Host, 80)
	testutil.WaitFor(t, labtest.Soon, "another connection", func() bool { return s.Result().Connects == 2 })
	before = s.Result().Received
	testutil.WaitFor(t, labtest.Soon, "answers over it", func() bool { return s.Result().Received > before })
	if r := s.Stop(); r.LastErr == nil || r.Sent > r.Received+1 || r.Retransmits < lost {
		t.Errorf("after a broken connection: %+v", r)
	}
}

// A stream whose own timeout is far away ends by the one that Within sets.
func TestStreamEndsWithinAShorterTimeout(t *testing.T) {
	n := labtest.Node(t, labtest.New(t), "a")
	client, serving := labtest.Pod(t, n, "client"), labtest.Pod(t, n, "server")
	server := labtest.ListenTCP(t, serving.Host, 80)
	s := labtest.Must[*echo.Stream](t)(echo.StartStream(client.Host, server.Addr4(), echo.StreamOptions{Interval: time.Millisecond, Timeout: time.Hour}))
	defer s.Close()
	labtest.DropTo(t, n, 80)
	s.Within(100 * time.Millisecond)
	testutil.WaitFor(t, labtest.Soon, "the stream to end", func() bool { return s.Result().Errors > 0 })
}
