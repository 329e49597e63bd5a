package iptables

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/iptables"
)

// Policies and labels of 24 tenants change, mostly of all at once, while an endpoint comes and another goes, under traffic. No verdict is
// wrong, and no packet of a flow that is always allowed is lost: neither a datagram nor a TCP segment, one without data included.
//
// One change is one altered object: a policy (which comes or goes, or has another action, port, source, prefix, order or tier), a network
// set or a pod's labels. It counts only if it makes the verdict of a tenant's port the other one, by internal/oracle; a tenant
// has one change in a flush. After each flush a pod connects to each tenant's port, over IPv4 and IPv6 in turn: it must get an answer, or
// its SYN must not come. A connection opened before goes on, or is cut. So the verdict is probed before a change and after it.
//
// MARGAY_E2E_CHANGES is how many changes there are at least, MARGAY_E2E_SEED draws others.
func TestChangesUnderTraffic(t *testing.T) {
	changes := int(testutil.Number(t, "MARGAY_E2E_CHANGES", 100))
	seed := testutil.Number(t, "MARGAY_E2E_SEED", 1)
	for _, backend := range []iptables.Backend{iptables.Legacy, iptables.NFT} {
		t.Run(string(backend), func(t *testing.T) {
			n := newTenants(t, backend, 24, seed)
			n.probe()
			begun := time.Now()
			for n.changes < changes {
				n.round()
				if t.Failed() {
					break
				}
			}
			took := time.Since(begun)
			n.check("in the end")
			sum := n.stop()
			t.Logf("seed %d: %d changes in %d flushes, %v; %d connections that must open, %d that must not, %d that must go on, %d that must be cut",
				seed, n.changes, n.flushes, took.Round(time.Second), n.opened.Load(), n.refused.Load(), n.continued.Load(), n.cut.Load())
			t.Logf("%d datagrams, %d TCP segments with SYN or data, %d without; %d connections to ports that are always open or closed",
				sum.datagrams, sum.segments, sum.bare, sum.attempts)
		})
	}
}

// mustBeCut demands that a connection ends when something is sent.
func (n *realNode) mustBeCut(c net.Conn) {
	defer c.Close()
	err := c.SetDeadline(time.Now().Add(patience))
	if err == nil {
		_, err = c.Write([]byte("still here"))
	}
	if err == nil {
		_, err = io.Copy(io.Discard, c)
	}
	if !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
		n.t.Errorf("a connection that policy denies now: %v", err)
	}
}
