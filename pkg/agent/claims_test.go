package agent

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/margay-project/margay/pkg/calc"
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
	items := lostClaimEvents([]calc.LostClaim{lost(1, true, false), lost(2, true, true), lost(3, false, false)})
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
