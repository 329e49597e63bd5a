package pair

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
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
	must(t, testutil.OnEachCPU(func() error {
		for hop := range byte(hops) {
			if err := roundTrip(c, hop); err != nil {
				return err
			}
		}
		return nil
	}))
	for _, tap := range s.taps {
		tap.CatchUp()
	}
}

// roundTrip sends a byte from a socket to itself and returns when it is back. The queue of a CPU may be full of what others send; then the byte is
// lost, and sent again.
func roundTrip(c *net.UDPConn, b byte) error {
	for patience := time.Now().Add(testcluster.Soon); ; {
		if _, err := c.WriteTo([]byte{b}, c.LocalAddr()); err != nil {
			return fmt.Errorf("send to the node's loopback: %w", err)
		}
		if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		for got := []byte{^b}; got[0] != b; {
			_, _, err := c.ReadFrom(got)
			if errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(patience) {
				break
			}
			if err != nil {
				return fmt.Errorf("receive from the node's loopback: %w", err)
			}
			if got[0] == b {
				return nil
			}
		}
	}
}
