package explain

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// between explains what a pod of a namespace sends to another one, given the rules of the namespace's policy for ingress. Each of the pods gives
// the name http of a port another number.
func between(t *testing.T, request Request, rules []model.Rule) (*Explanation, error) {
	t.Helper()
	namespace := model.NamespaceProfile("evil")
	updates := []model.Update{model.ProfileUpdate{Name: namespace, Profile: &model.Profile{}}}
	for i := range 100 {
		updates = append(updates, model.EndpointUpdate{ID: model.WorkloadID("evil", fmt.Sprint("p", i)), Endpoint: &model.Endpoint{Node: "n1",
			Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 9, 0, byte(i)})}, Labels: map[string]string{"app": "x"}, Profiles: []string{namespace},
			Ports: []model.NamedPort{{Name: "http", Protocol: model.ProtoTCP, Port: uint16(1000 + i)}}}})
	}
	policy := &model.Policy{Tier: model.TierDefault, Selector: selector.Equal("app", "x"), AppliesIngress: true, Ingress: rules}
	updates = append(updates, model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "evil", Name: "x"}, Policy: policy})
	request.Src, request.Dst = "evil/p1", "evil/p2"
	return NewState(updates).Explain(request)
}

// A tenant chooses how long a selector is, how many rules have it, and how many numbers a port's name stands for. The agent makes the answer.
func TestALongSelectorMakesNoLongAnswer(t *testing.T) {
	values := []string{"x"}
	for i := range 5000 {
		values = append(values, fmt.Sprintf("value-%08d", i))
	}
	long, tcp := selector.In("app", values...), uint8(model.ProtoTCP)
	var rules []model.Rule
	for i := range 20 {
		rules = append(rules, model.Rule{Action: model.Allow, Index: i, Protocol: &tcp, Destination: model.Entity{NamedPorts: []string{"http"}, Selector: long}},
			model.Rule{Action: model.Allow, Index: i, Source: model.Entity{Selector: selector.And(selector.Equal("no", "one"), long)}})
	}
	e, err := between(t, Request{Port: 99}, rules)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	const most = 1 << 20
	if len(text) > most {
		t.Errorf("the answer about %d rules with a selector of %d bytes has %d bytes, want %d at most", len(rules), len(long.String()), len(text), most)
	}
	if !strings.Contains(string(text), "94 more numbers of a port's name") {
		t.Errorf("the answer does not say how many numbers of the name are left out: %.2000s", text)
	}
}

func TestPortsAreNotListedForHours(t *testing.T) {
	var rules []model.Rule
	tcp := uint8(model.ProtoTCP)
	for i := range 2000 {
		port := uint16(2*i + 1)
		rules = append(rules, model.Rule{Action: model.Allow, Index: i, Protocol: &tcp, Destination: model.Entity{Ports: []model.PortRange{{Lo: port, Hi: port}}}})
	}
	if _, err := between(t, Request{}, rules); err == nil || !strings.Contains(err.Error(), "2000 rules and tells 4000 ranges of ports apart, too many to list: ask about one port") {
		t.Errorf("got error %v", err)
	}
	if e, err := between(t, Request{Port: 99}, rules); err != nil || e.Ingress.Verdict != VerdictAllow {
		t.Errorf("about one port: %+v, err %v", e, err)
	}
}
