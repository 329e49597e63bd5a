package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// reach demands that TCP and UDP to the port, or echo requests if it is 0, get through to all the host's addresses, or
// that none of them does. All are tried at the same time.
func (c *cluster) reach(from, to *lab.Host, port uint16, want bool) {
	c.t.Helper()
	c.reachAt(from, to.Addrs(), port, want)
}

// reachService is reach through the cluster IPs of a Service.
func (c *cluster) reachService(from *lab.Host, s *corev1.Service, port uint16, want bool) {
	c.t.Helper()
	c.reachAt(from, clusterIPs(s), port, want)
}

func clusterIPs(s *corev1.Service) (addrs []netip.Addr) {
	for _, text := range s.Spec.ClusterIPs {
		if a, err := netip.ParseAddr(text); err == nil { // "None" is none
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// reachAt is reach at the addresses.
func (c *cluster) reachAt(from *lab.Host, at []netip.Addr, port uint16, want bool) {
	c.t.Helper()
	timeout := never
	if want {
		timeout = soon
	}
	for _, wrong := range attempts(from, at, port, timeout, want) {
		c.t.Error(wrong)
	}
}

// awaitReach tries again and again until reach would find things as wanted. What holds afterwards is for reach to say. Two
// attempts in succession have to show that nothing gets through: while the machine stands still, one attempt fails as if it was denied.
func (c *cluster) awaitReach(from *lab.Host, at []netip.Addr, port uint16, want bool) {
	c.t.Helper()
	over, left := time.Now().Add(soon), 1
	if !want {
		left = 2
	}
	for tries, succeeded := 1, 0; ; tries++ {
		wrong := attempts(from, at, port, never, want)
		if succeeded++; len(wrong) > 0 {
			succeeded = 0
		}
		if succeeded == left {
			if want && tries > 1 {
				c.forgetUntranslated(at)
			}
			return
		}
		if time.Now().After(over) {
			c.t.Fatalf("waited %v:\n%s", soon, strings.Join(wrong, "\n"))
		}
	}
}

// forgetUntranslated removes what the nodes' conntrack knows of unanswered attempts at the addresses, which kube-proxy did not
// translate yet. For two minutes a connection with the same ends would go where they went. A kernel chooses source ports from another place every
// 10 s, so such a connection happens, once in some hundred runs.
func (c *cluster) forgetUntranslated(at []netip.Addr) {
	c.t.Helper()
	for _, n := range c.nodes {
		c.must(n.Do(func() error {
			kernel, err := conntrack.Open()
			if err != nil {
				return err
			}
			var early []conntrack.Entry
			err = kernel.Dump(conntrack.Both, conntrack.Filter{}, func(e conntrack.Entry) {
				if e.Status&(conntrack.SeenReply|conntrack.DstNAT) == 0 && slices.Contains(at, e.Original.Dst) {
					early = append(early, e)
				}
			})
			for _, failed := range kernel.Delete(early) {
				if !errors.Is(failed, conntrack.ErrNoEntry) {
					err = errors.Join(err, failed)
				}
			}
			return errors.Join(err, kernel.Close())
		}))
	}
}

// awaitService waits until the Service's cluster IPs lead somewhere from the host: kube-proxy takes its time.
func (c *cluster) awaitService(from *lab.Host, s *corev1.Service, port uint16) {
	c.t.Helper()
	c.awaitReach(from, clusterIPs(s), port, true)
}

// attempts makes all attempts at the same time and tells of those that end otherwise than wanted.
func attempts(from *lab.Host, at []netip.Addr, port uint16, timeout time.Duration, want bool) (wrong []string) {
	type attempt struct {
		what string
		got  echo.Attempt
	}
	done := make(chan attempt)
	tries := 0
	try := func(what string, do func() echo.Attempt) {
		tries++
		go func() { done <- attempt{what, do()} }()
	}
	for _, a := range at {
		dst := netip.AddrPortFrom(a, port)
		if port == 0 {
			try("ping "+a.String(), func() echo.Attempt { return traffic.Ping(from, a, timeout) })
			continue
		}
		try("tcp "+dst.String(), func() echo.Attempt { return echo.DialTCP(from, dst, timeout) })
		try("udp "+dst.String(), func() echo.Attempt { return echo.ExchangeUDP(from, dst, []byte("hello"), timeout) })
	}
	outcome := echo.Timeout
	if want {
		outcome = echo.Connected
	}
	for range tries {
		if a := <-done; a.got.Outcome != outcome || a.got.Established && !want {
			wrong = append(wrong, fmt.Sprintf("%s, %s: %v (%v), want %v", from.Name(), a.what, a.got.Outcome, a.got.Err, outcome))
		}
	}
	return wrong
}
