package iptables_test

import (
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/ruleset"
)

// TestPacketsSeeATransactionWholeOrNotAtAll: all versions of the rules allow one port and deny another, and packets to both are sent
// all the time while one version replaces the other. The control writes the same in two steps.
func TestPacketsSeeATransactionWholeOrNotAtAll(t *testing.T) {
	realKernels(t, func(t *testing.T, k kernel) {
		if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		table := k.table("mangle")
		version(t, table, 0)
		jumps(t, table, "OUTPUT", "-p udp -j mgyA-out")
		apply(t, table)
		f := newFlood(t, k.family)
		for i := range 40 {
			version(t, table, i+1)
			apply(t, table)
		}
		sent, wrong := f.stop()
		t.Logf("%d packets, %d of them judged wrongly, in 40 transactions", sent, wrong)
		if wrong > 0 || sent < 1000 {
			t.Errorf("%d of %d packets were judged wrongly", wrong, sent)
		}

		f = newFlood(t, k.family)
		for range 40 {
			k.load(t, "mangle", "-F mgyA-out")
			k.load(t, "mangle", "-A mgyA-out -p udp -m udp --dport 9 -j ACCEPT", "-A mgyA-out -j DROP")
		}
		sent, wrong = f.stop()
		t.Logf("%d packets, %d of them judged wrongly, in two steps each", sent, wrong)
		if wrong == 0 {
			t.Error("the control finds nothing: this test proves nothing")
		}
	})
}

// version desires other chains for each i, which do the same.
func version(t *testing.T, table *iptables.Table, i int) {
	t.Helper()
	name := func(i, depth int) string { return fmt.Sprintf("mgyA-%d-%d", i%2, depth) }
	const depth = 5
	set(t, table, ruleset.Chain{Name: "mgyA-out", Rules: []string{"-g " + name(i, 0)}})
	for d := range depth {
		set(t, table, ruleset.Chain{Name: name(i, d), Rules: []string{"-p udp -m udp --dport 5000:6000 -j DROP", "-g " + name(i, d+1)}})
		table.Remove(name(i+1, d))
	}
	set(t, table, ruleset.Chain{Name: name(i, depth), Rules: []string{"-p udp -m udp --dport 9 -j ACCEPT", "-j DROP"}})
	table.Remove(name(i+1, depth))
}

// flood sends datagrams to two ports. The kernel answers the sender of one that is denied with EPERM.
type flood struct {
	sent, wrong atomic.Int64
	end         atomic.Bool
	done        sync.WaitGroup
}

func newFlood(t *testing.T, family iptables.Family) *flood {
	t.Helper()
	domain, to := unix.AF_INET, func(port int) unix.Sockaddr { return &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}} }
	if family == iptables.V6 {
		domain, to = unix.AF_INET6, func(port int) unix.Sockaddr { return &unix.SockaddrInet6{Port: port, Addr: [16]byte{15: 1}} }
	}
	socket, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(socket) })
	f := &flood{}
	f.done.Go(func() {
		for !f.end.Load() {
			for port, allowed := range map[int]bool{9: true, 10: false} {
				err := unix.Sendto(socket, []byte("x"), 0, to(port))
				f.sent.Add(1)
				if denied := errors.Is(err, unix.EPERM); denied == allowed {
					f.wrong.Add(1)
				}
			}
		}
	})
	time.Sleep(10 * time.Millisecond) // it has begun
	return f
}

func (f *flood) stop() (sent, wrong int64) {
	f.end.Store(true)
	f.done.Wait()
	return f.sent.Load(), f.wrong.Load()
}
