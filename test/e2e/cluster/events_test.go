package cluster

import (
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/margay-project/margay/internal/testutil"
)

// Every agent sees that a policy is wrong, all of them tell in so small a cluster, and its owner finds one Event. The agents
// have the rights that deploy/ gives them, and no Lease.
func TestTheOwnerOfAPolicyFindsOneEventOfAllAgents(t *testing.T) {
	c := newCluster(t, options{nodes: 3})
	c.namespace("shop")
	c.policy("shop", "db", `{podSelector: {}, policyTypes: [Egress], ingress: [{}]}`)
	events := func() (all []eventsv1.Event) {
		list, err := c.client.EventsV1().Events("shop").List(t.Context(), metav1.ListOptions{})
		c.must(err)
		for _, e := range list.Items {
			if e.Regarding.Name == "db" {
				all = append(all, e)
			}
		}
		return all
	}
	sent := func() (agents int) {
		for _, n := range c.nodes {
			if _, text := n.agent.get(metricsPort, "/metrics"); strings.Contains(text, `margay_object_events_total{result="sent"} 1`) {
				agents++
			}
		}
		return agents
	}
	testutil.WaitFor(t, time.Minute, "all agents tell", func() bool { return sent() == len(c.nodes) })
	all := events()
	if len(all) != 1 {
		t.Fatalf("%d events, want 1: %+v", len(all), all)
	}
	e := all[0]
	if e.Reason != "PartlyIgnored" || e.ReportingController != "margay" || !strings.Contains(e.Note, "policyTypes does not contain Ingress") {
		t.Errorf("event %+v", e)
	}
	p, err := c.client.NetworkingV1().NetworkPolicies("shop").Get(t.Context(), "db", metav1.GetOptions{})
	c.must(err)
	if e.Regarding.UID != p.UID {
		t.Errorf("the event is about UID %s, the policy's is %s", e.Regarding.UID, p.UID)
	}
	leases, err := c.client.CoordinationV1().Leases("").List(t.Context(), metav1.ListOptions{})
	c.must(err)
	for _, l := range leases.Items {
		if strings.Contains(l.Name, "margay") {
			t.Errorf("there is a lease %s/%s", l.Namespace, l.Name)
		}
	}
}
