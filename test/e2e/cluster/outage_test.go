package cluster

import (
	"net/netip"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// The faults that other tests rely on are what they say.
func TestFaultsOfTheControlPlane(t *testing.T) {
	c := newCluster(t, options{proxy: "none", noAgents: true})
	c.namespace("shop")
	p := c.pod("shop", "a", "n1")
	api := netip.AddrPortFrom(c.control.Addr4(), 6443)
	reached := func(n *lab.Node, within time.Duration) echo.Outcome {
		conn, err := traffic.OpenTCP(n.Host, api, within)
		if err == nil {
			conn.Close()
			return echo.Connected
		}
		return echo.DialTCP(n.Host, api, within).Outcome // the outcome distinguishes a refused connection from a timeout
	}
	if got := reached(c.nodes[0].Node, soon); got != echo.Connected {
		t.Fatalf("API server from n1: %v", got)
	}

	c.must(c.plane.Isolate(c.nodes[0].Node))
	if got := reached(c.nodes[0].Node, never); got != echo.Timeout {
		t.Errorf("API server from the isolated n1: %v, want timeout", got)
	}
	if got := reached(c.nodes[1].Node, soon); got != echo.Connected {
		t.Errorf("API server from n2: %v, want connected", got)
	}
	c.must(c.plane.Rejoin(c.nodes[0].Node))
	if got := reached(c.nodes[0].Node, soon); got != echo.Connected {
		t.Errorf("API server from n1 afterwards: %v, want connected", got)
	}

	c.policy("shop", "forgotten", "{podSelector: {}}")
	before, err := c.client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	c.must(err)
	c.plane.StopAPIServer()
	if got := reached(c.nodes[0].Node, soon); got != echo.Refused {
		t.Errorf("stopped API server: %v, want refused", got)
	}
	c.reach(c.nodes[1].Host, p.Host, 80, true)
	c.must(c.plane.DeleteKey(t.Context(), "/registry/networkpolicies/shop/forgotten"), c.plane.Compact(t.Context()),
		c.plane.StartAPIServer(t.Context()))
	_, err = c.client.NetworkingV1().NetworkPolicies("shop").Get(t.Context(), "forgotten", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("policy deleted behind the API server's back: %v, want not found", err)
	}
	seconds := int64(5)
	w, err := c.client.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{ResourceVersion: before.ResourceVersion, TimeoutSeconds: &seconds})
	if err == nil {
		event := <-w.ResultChan()
		err = apierrors.FromObject(event.Object)
		w.Stop()
	}
	if !apierrors.IsGone(err) && !apierrors.IsResourceExpired(err) {
		t.Errorf("watch from before the compaction: %v, want that it is too late", err)
	}

	c.plane.StopEtcd()
	c.must(c.plane.StartEtcd(t.Context()))
	start := time.Now()
	c.pod("shop", "b", "n2") // the whole cluster gets over it
	t.Logf("a pod ran %v after etcd's return", time.Since(start).Round(time.Millisecond))
	c.must(c.plane.Err())
}
