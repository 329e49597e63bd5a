package bpf

import (
	"testing"

	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/model"
)

func policyOf(name, iface string) *model.EndpointPolicy {
	return &model.EndpointPolicy{ID: model.WorkloadID("shop", name), Iface: iface}
}

func TestAnEndpointGoesOnWithTheRecordOfItsInterface(t *testing.T) {
	r := newRoster()
	earlier := &endpoint{ifindex: 7, number: 40}
	standIn := r.adopt("cali1", earlier)
	web := policyOf("web", "cali1")
	bindings := []plan.Binding{{Endpoint: web}}
	if got := r.interfaceOf(web.ID, bindings); got != 7 {
		t.Errorf("before it is bound its interface is %d, want that of the stand-in", got)
	}
	if got := r.interfaceOf(web.ID, nil); got != 0 {
		t.Errorf("the interface of an endpoint that no binding names is %d", got)
	}
	if got := r.record(web); got != earlier || got.number != 40 {
		t.Errorf("got %+v, want the record of the earlier agent", got)
	}
	if r.bound[standIn] != nil || r.bound[web.ID] != earlier || len(r.adopted) != 0 {
		t.Errorf("the stand-in is left: %v, %v", r.bound, r.adopted)
	}
	if got := r.interfaceOf(web.ID, nil); got != 7 {
		t.Errorf("its interface is %d", got)
	}
}

func TestOpenAreTheInterfacesThatEndpointsAreProgrammedOn(t *testing.T) {
	r := newRoster()
	r.adopt("cali1", &endpoint{ifindex: 7})
	r.record(policyOf("db", "cali3")).policy = policyOf("db", "cali3")
	if got := r.open(); !got[7] || len(got) != 1 {
		t.Errorf("%v", got)
	}
}

// A stamp older than an endpoint's number is of another endpoint, so the number never changes, and is no later than its generations.
func TestTheNumberOfAnEndpointIsItsFirstGeneration(t *testing.T) {
	n := startNode(t, stage{role: "friend", allow: []string{"friend"}, ports: []uint16{80}})
	born := func() uint32 {
		t.Helper()
		e, ok := n.kernel.endpoints.Get(1000)
		_, ingress := bpfmaps.SplitPolicyWord(e.Ingress)
		_, egress := bpfmaps.SplitPolicyWord(e.Egress)
		if !ok || e.Id == 0 || e.Id > ingress || e.Id > egress {
			t.Fatalf("the endpoint has number %d, and generations %d and %d", e.Id, ingress, egress)
		}
		return e.Id
	}
	first := born()
	n.mustApply(t, stage{role: "friend", allow: []string{"friend"}, ports: []uint16{81}}.updates()...)
	if got := born(); got != first {
		t.Errorf("another policy makes number %d of %d", got, first)
	}
	gone := endpoint4("a", "calia", "10.0.0.10", nil)
	gone.Endpoint = nil
	n.mustApply(t, gone)
	n.mustApply(t, endpoint4("heir", "calia", "10.0.0.10", nil))
	if got := born(); got <= first+1 {
		t.Errorf("another endpoint has number %d after %d", got, first)
	}
}
