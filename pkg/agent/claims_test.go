package agent

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
)

// TestLostClaimsAreReportedToTheirOwners: claims of this node's pods and of Services. A pod of another node is reported there, and one that
// is being deleted loses its route first.
func TestLostClaimsAreReportedToTheirOwners(t *testing.T) {
	addr := netip.MustParseAddr("192.0.2.7")
	lost := func(n int, local, terminating bool) calc.LostClaim {
		return calc.LostClaim{Endpoint: podID(n), Local: local, Terminating: terminating, Addr: addr, Why: calc.Reserved}
	}
	service := calc.ServiceClaim{Service: model.ServiceKey{Namespace: "shop", Name: "front"}, Addr: addr, Of: "pod shop/db"}
	items := lostClaimEvents([]calc.LostClaim{lost(1, true, false), lost(2, true, true), lost(3, false, false)}, nil)
	items = slices.AppendSeq(items, serviceClaimEvents(slices.Values([]calc.ServiceClaim{service})))
	if len(items) != 2 {
		t.Fatalf("reported: %v, want one pod and one Service", items)
	}
	pod, svc := items[0], items[1]
	if !pod.Claim || !pod.Local || pod.Problem.Ref.Kind != "Pod" || pod.Problem.Ref.Name != podID(1).Name {
		t.Errorf("the pod is reported as %+v", pod)
	}
	if !svc.Claim || svc.Local || svc.Problem.Ref.Kind != "Service" || svc.Problem.Ref.Name != "front" {
		t.Errorf("the Service is reported as %+v", svc)
	}
}

// TestNoPacketIsSaidToBeDroppedWhereNoProgramIs: under a wrong prefix the claims of all pods are lost, since the node has no routes to interfaces
// of such names, and their packets pass.
func TestNoPacketIsSaidToBeDroppedWhereNoProgramIs(t *testing.T) {
	claim := calc.LostClaim{Endpoint: podID(1), Local: true, Addr: netip.MustParseAddr("192.0.2.7"), Why: calc.NotRouted, Iface: "veth1"}
	for ifindex, want := range map[uint32]bool{0: false, 7: true} {
		states := []dataplane.EndpointStatus{{ID: podID(1), Ifindex: ifindex}}
		event := lostClaimEvents([]calc.LostClaim{claim}, states)[0].Problem.Reason
		row := lostAddrs(podID(1), []calc.LostClaim{claim}, unattached(states)[podID(1)])[0].Reason
		for _, text := range []string{event, row} {
			if strings.Contains(text, "dropped") != want || !strings.Contains(text, "to its interface veth1") {
				t.Errorf("interface %d: %s", ifindex, text)
			}
		}
	}
}

// Users with rights to a namespace read its Events. A tenant makes a Service with 4,096 addresses, and must not learn whose they are.
func TestEventsNameNoObjectsOfOtherNamespaces(t *testing.T) {
	addr := netip.MustParseAddr("192.0.2.7")
	lost := func(owner string) calc.LostClaim {
		return calc.LostClaim{Endpoint: model.WorkloadID("shop", "x"), Local: true, Addr: addr, Why: calc.Taken, Owner: model.WorkloadID(owner, "payments")}
	}
	service := func(of string) calc.ServiceClaim {
		return calc.ServiceClaim{Service: model.ServiceKey{Namespace: "shop", Name: "front"}, Addr: addr, Of: of}
	}
	items := lostClaimEvents([]calc.LostClaim{lost("shop"), lost("bank")}, nil)
	items = slices.AppendSeq(items, serviceClaimEvents(slices.Values([]calc.ServiceClaim{service("endpoint shop/payments"), service("Service shop/payments"),
		service("endpoint bank/payments"), service("Service bank/payments"), service("node bank")})))
	for i, want := range []string{"belongs to endpoint shop/payments", "belongs to a pod of another namespace", "of endpoint shop/payments:", "of Service shop/payments:",
		"of a pod of another namespace:", "of a Service of another namespace:", "of a node:"} {
		if text := items[i].Problem.Reason; !strings.Contains(text, want) || strings.Contains(text, "bank") {
			t.Errorf("%q, want %q in it and nothing of the other namespace", text, want)
		}
	}
}
