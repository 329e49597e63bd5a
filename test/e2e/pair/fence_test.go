package pair

import (
	"fmt"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testcluster"
)

// hops is at least how often a packet may be queued on its way from one place to another, the search for a neighbour included.
const hops = 16

// fence returns when all packets that were sent before have arrived, or never will. The kernel queues the packets of one CPU, of all
// namespaces, in their order. A packet to the node itself is queued once, so after as many of those as a packet from place to place may have
// hops, one after the other on each CPU, all earlier packets are through.
func (s *side) fence(t *testing.T) {
	t.Helper()
	var c *net.UDPConn
	must(t, s.node.Do(func() (err error) {
		c, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		return err
	}))
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(testcluster.Soon)), onEachCPU(func() error {
		for range hops {
			if _, err := c.WriteTo([]byte{1}, c.LocalAddr()); err != nil {
				return fmt.Errorf("send to the node's loopback: %w", err)
			}
			if _, _, err := c.ReadFrom(make([]byte, 1)); err != nil {
				return fmt.Errorf("receive from the node's loopback: %w", err)
			}
		}
		return nil
	}))
	for _, tap := range s.taps {
		tap.CatchUp()
	}
}

// onEachCPU calls a function on each CPU that the process may use.
func onEachCPU(do func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return fmt.Errorf("read on which CPUs the test runs: %w", err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &all) }() // as before
	for cpu := range 64 * len(all) {
		if !all.IsSet(cpu) {
			continue
		}
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return fmt.Errorf("run on CPU %d: %w", cpu, err)
		}
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}
