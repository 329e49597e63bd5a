package bpf

import (
	"testing"

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

func TestNumbersOfEndpointsGoOnAfterThoseOfAnEarlierAgent(t *testing.T) {
	r := newRoster()
	r.adopt("cali1", &endpoint{ifindex: 7, number: 40})
	r.adopt("cali2", &endpoint{ifindex: 8, number: 12})
	db := policyOf("db", "cali3")
	first := r.record(db)
	if first.number != 41 {
		t.Errorf("number %d, want the one after the highest", first.number)
	}
	if again := r.record(db); again != first || r.numbers != 41 {
		t.Error("an endpoint got another record the second time")
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
