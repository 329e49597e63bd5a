package hostile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/pkg/lab"
)

// Clocks are threads of real time on fixed CPUs. A clock is both ends of what it measures, so no other process delays it in
// user space: the time is that of the kernel's path, with what interrupts it.

const (
	latencyEvery = 2 * time.Millisecond
	changeEvery  = 500 * time.Microsecond // a datagram, until one arrives
	answerLimit  = time.Second            // an answer that does not come by then counts as that
)

// thread runs functions one after the other.
type thread struct{ jobs chan func() }

// newThread starts a thread on a CPU with a priority of SCHED_FIFO. It ends with the test.
func newThread(t *testing.T, cpu int, priority uint32) *thread {
	t.Helper()
	r, started := &thread{make(chan func())}, make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var set unix.CPUSet
		set.Set(cpu)
		err := unix.SchedSetaffinity(0, &set)
		started <- errors.Join(err, unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: priority}, 0))
		for job := range r.jobs {
			job()
		}
	}()
	t.Cleanup(func() { close(r.jobs) })
	if err := <-started; err != nil {
		t.Fatalf("make a thread of real time on CPU %d: %v", cpu, err)
	}
	return r
}

func (r *thread) do(job func() error) error {
	done := make(chan error, 1)
	r.jobs <- func() {
		defer close(done) // a job that fails the test does not return
		done <- job()
	}
	return <-done
}

// clocks are the threads that measure: one for changes, and one on each of up to two CPUs for latency, which goes before it.
type clocks struct {
	changes *thread
	latency []*thread
}

func startClocks(t *testing.T) *clocks {
	t.Helper()
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 3) // clocks keep theirs while they wait
	c := &clocks{}
	for cpu := 0; len(c.latency) < min(2, allowed.Count()); cpu++ {
		if !allowed.IsSet(cpu) {
			continue
		}
		c.latency = append(c.latency, newThread(t, cpu, 2))
		if c.changes == nil {
			c.changes = newThread(t, cpu, 1)
		}
	}
	return c
}

// ask begins to measure how long questions on the pairs and their answers take. The returned function ends that, and returns it with how
// late each question was asked: for how long the CPU was kept from the thread.
func (c *clocks) ask(pairs []*pair) (end func() (latency, late []time.Duration)) {
	type measured struct{ latency, late []time.Duration }
	var over atomic.Bool
	done := make(chan measured, len(c.latency))
	for i, r := range c.latency {
		r.jobs <- func() {
			m := measured{make([]time.Duration, 0, 1<<14), make([]time.Duration, 0, 1<<14)}
			for due := monotonic(); !over.Load(); due += latencyEvery {
				sleepUntil(due)
				m.late = append(m.late, monotonic()-due)
				for k := i; k < len(pairs); k += len(c.latency) {
					m.latency = append(m.latency, pairs[k].exchange())
				}
				due = max(due, monotonic()-latencyEvery) // questions that were missed are not made up for
			}
			done <- m
		}
	}
	return func() (latency, late []time.Duration) {
		over.Store(true)
		for range c.latency {
			m := <-done
			latency, late = append(latency, m.latency...), append(late, m.late...)
		}
		return latency, late
	}
}

// pair is both ends of a UDP flow. Datagrams are numbered.
type pair struct {
	client, server int
	number         uint64
}

// openPair opens the flow; its first datagram is the caller's.
func openPair(t *testing.T, from, to *lab.Pod, port uint16) *pair {
	t.Helper()
	server, at := openUDP(t, to, port)
	client, as := openUDP(t, from, 0)
	if err := errors.Join(unix.Connect(client, at), unix.Connect(server, as)); err != nil {
		t.Fatalf("open a UDP flow from %s to %s: %v", from.Name(), to.Name(), err)
	}
	return &pair{client: client, server: server}
}

func openUDP(t *testing.T, p *lab.Pod, port uint16) (fd int, at unix.Sockaddr) {
	t.Helper()
	wait := unix.NsecToTimeval(int64(answerLimit))
	err := p.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
			return err
		}
		if err = unix.Bind(fd, &unix.SockaddrInet4{Addr: p.Addr4().As4(), Port: int(port)}); err != nil {
			return err
		}
		at, err = unix.Getsockname(fd)
		return err
	})
	if err != nil {
		t.Fatalf("open a UDP socket at %s: %v", netip.AddrPortFrom(p.Addr4(), port), err)
	}
	return fd, at
}

func (p *pair) close() {
	_ = unix.Close(p.client)
	_ = unix.Close(p.server)
}

// exchange returns how long a question and its answer take, answerLimit at most.
func (p *pair) exchange() time.Duration {
	p.number++
	start := monotonic()
	if !sendNumber(p.client, p.number) || !receiveNumber(p.server, p.number, 0) || !sendNumber(p.server, p.number) || !receiveNumber(p.client, p.number, 0) {
		return answerLimit
	}
	return monotonic() - start
}

// change opens a port of a pod.
type change struct {
	cluster    *testcluster.Cluster
	name, spec string
	pair       *pair // to that port
}

// enforced writes a policy that opens the port, returns how long it takes until it is open, and removes the policy.
func (c *change) enforced() (took time.Duration, err error) {
	if took, err = c.written(); err == nil {
		c.cluster.Remove("policy-" + c.name)
	}
	return took, err
}

// written writes a policy that opens the port, and returns how long it takes until it is open.
func (c *change) written() (took time.Duration, err error) {
	start := monotonic()
	c.cluster.Policy(c.name, c.spec)
	for due := start; ; due += changeEvery {
		c.pair.number++
		sendNumber(c.pair.client, c.pair.number)
		if receiveNumber(c.pair.server, c.pair.number, unix.MSG_DONTWAIT) {
			return monotonic() - start, nil
		}
		if due-start > soon {
			return 0, fmt.Errorf("the change %s is not enforced after %v", c.name, soon)
		}
		sleepUntil(due)
	}
}

// The calls below wait in the kernel without Go's scheduler, which would add its own work. It sends signals to threads that are
// away for long, so that waits are interrupted.

func monotonic() time.Duration {
	var now unix.Timespec
	unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&now)), 0) // cannot fail
	return time.Duration(now.Nano())
}

func sleepUntil(at time.Duration) {
	due := unix.NsecToTimespec(int64(at))
	for {
		_, _, errno := unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, uintptr(unsafe.Pointer(&due)), 0, 0, 0)
		if errno != unix.EINTR {
			return
		}
	}
}

func sendNumber(fd int, number uint64) bool {
	var b [64]byte
	binary.BigEndian.PutUint64(b[:], number)
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return errno == 0
}

// receiveNumber reports whether the numbered datagram comes; earlier ones came too late.
func receiveNumber(fd int, number uint64, flags uintptr) bool {
	var b [64]byte
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), flags, 0, 0)
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			return false
		case int(n) == len(b) && binary.BigEndian.Uint64(b[:]) == number:
			return true
		}
	}
}
