package e2e

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// inFragments are datagrams of a pod, each in four fragments with pauses between them.
type inFragments struct {
	path
	server *echo.Server
	sent   atomic.Uint64
}

// send sends one datagram. Each has another number. A pause is long, so that most moments are between two fragments.
func (f *inFragments) send(number uint32, pause time.Duration) error {
	to := f.to.Addr()
	p := testutil.Packet{Src: f.from.Addr(to.Is6()), Dst: to, ID: number, L4: testutil.UDP{SrcPort: 4000, DstPort: f.port}, Payload: make([]byte, 1500)}
	for _, frame := range p.Fragments(400) {
		if err := traffic.SendRaw(f.from, frame[14:], to); err != nil {
			return fmt.Errorf("%v: %w", f.path, err)
		}
		time.Sleep(pause)
	}
	f.sent.Add(1)
	return nil
}

// TestNoDatagramInFragmentsIsLostInASwitch: its first fragments may have passed before programs are attached, and its last ones may come when these
// judge alone.
func TestNoDatagramInFragmentsIsLostInASwitch(t *testing.T) {
	s := newPathScene(t, modes[0]...)
	// The kernel gives up an IPv4 datagram if 64 others' fragments of its sender come between two of its own: on a busy machine they do.
	anyDistance := func() error { return os.WriteFile("/proc/sys/net/ipv4/ipfrag_max_dist", []byte("0"), 0o644) }
	if err := errors.Join(s.Node(0).Do(anyDistance), s.server.Do(anyDistance), s.outside.Do(anyDistance)); err != nil {
		t.Fatal(err)
	}
	var list []*inFragments
	for _, p := range append(s.named("pod to pod"), s.named("pod to outside")...) {
		server, err := echo.ListenUDPAt(p.at, p.responder().Addr(), p.port)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, &inFragments{path: p, server: server})
	}
	var numbers atomic.Uint32
	var group sync.WaitGroup
	done := make(chan struct{})
	for _, f := range list {
		// BPF charges a datagram of IPv4 to its pod for 77 s if more than 48 of the pod's fragments come between two of it, and a pod has room for
		// 256 (bpf/lib/reassembly.h). A switch on a busy machine takes so long that quick senders would use that up.
		v6 := f.to.Addr().Is6()
		for i := range map[bool]int{false: 6, true: 12}[v6] {
			pause := 150 * time.Millisecond
			if v6 && i < 4 {
				pause = 3 * time.Millisecond
			}
			group.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					if err := f.send(numbers.Add(1), pause); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	for _, mode := range modes[1:3] {
		s.switchTo(mode)
	}
	s.switchTo(modes[1])
	close(done)
	group.Wait()
	defer func() {
		if t.Failed() {
			t.Log("drops of the client:", s.Agent(0).Drops(s.client), "of the server:", s.Agent(0).Drops(s.server))
		}
	}()
	for _, f := range list {
		what := fmt.Sprintf("%v: %d datagrams to arrive", f.path, f.sent.Load())
		testutil.WaitFor(t, 10*time.Second, what, func() bool { return f.server.Received() >= f.sent.Load() })
	}
}
