package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// An address comes to be in a combination of sets that tables have no row for. Those of one namespace are made again one in each plan if they
// take long, and deny it until then. Those of another namespace do not wait.
func TestTablesOfOneNamespaceAreMadeAgainInTurn(t *testing.T) {
	const pods = 4
	members := map[model.SetID][]netip.Prefix{"a": policytest.Prefixes("10.0.0.100/32"), "b": policytest.Prefixes("10.0.0.101/32")}
	var endpoints []*model.EndpointPolicy
	add := func(namespace string, i int) {
		other := allowFrom("b")
		tcp := model.ProtoTCP
		other.Protocol, other.Destination.Ports = &tcp, &model.PortMatch{Ranges: []model.PortRange{{Lo: uint16(i + 1), Hi: uint16(i + 1)}}}
		e := endpointPolicy(fmt.Sprint(namespace, i), policyOfRules(model.Ingress, allowFrom("a"), other), openEgress, fmt.Sprint("10.0.0.", len(endpoints)+1))
		e.ID.Namespace = namespace
		endpoints = append(endpoints, e)
	}
	for i := range pods {
		add("evil", i)
	}
	add("shop", pods)
	k, c := newKernel(), New(Options{Limits: table.Limits{Again: 1}}, nil)
	k.refuses = true
	before := state(members, endpoints...)
	carryOut(k, c.Update(before.changes(nil)))
	allowed := func(src string) map[string]int {
		t.Helper()
		n := map[string]int{}
		for _, e := range endpoints {
			v, _, err := k.judge(e.ID, model.Ingress, model.Packet{Src: netip.MustParseAddr(src), Dst: e.Addrs[0], Protocol: 6, DstPort: 80})
			if err != nil {
				t.Fatal(err)
			}
			if v.Allow {
				n[e.ID.Namespace]++
			}
		}
		return n
	}
	members = maps.Clone(members)
	members["a"], members["b"] = policytest.Prefixes("10.0.0.100/32", "10.0.0.102/32"), policytest.Prefixes("10.0.0.101/32", "10.0.0.102/32")
	ch := state(members, endpoints...).changes(before)
	for plans := 1; plans <= pods; plans++ {
		p := c.Update(ch)
		carryOut(k, p)
		if n := allowed("10.0.0.102"); n["evil"] != plans || n["shop"] != 1 {
			t.Errorf("after plan %d: allowed by %v", plans, n)
		}
		if n := allowed("10.0.0.100"); n["evil"] != pods || n["shop"] != 1 {
			t.Errorf("after plan %d the address that stays is allowed by %v", plans, n)
		}
		if more := plans < pods; p.More != more {
			t.Errorf("plan %d: more %v, want %v", plans, p.More, more)
		}
		ch = model.Changes{InSync: true}
	}
	if failed := c.Failed(); len(failed) > 0 {
		t.Errorf("failed: %v", failed)
	}
}

// Until tables are made again, an address in a new combination of sets keeps what it was allowed where the policy goes on to allow it all of
// that. What is revoked does not wait for the tables.
func TestAnAddressKeepsWhatItWasAllowedUntilTablesAreMadeAgain(t *testing.T) {
	const pods = 4
	var endpoints []*model.EndpointPolicy
	for i := range pods {
		tcp, denied := model.ProtoTCP, allowFrom("denied")
		denied.Action = model.Deny
		other := allowFrom("b")
		other.Protocol, other.Destination.Ports = &tcp, &model.PortMatch{Ranges: []model.PortRange{{Lo: uint16(i + 1), Hi: uint16(i + 1)}}}
		endpoints = append(endpoints, endpointPolicy(fmt.Sprint("evil", i), policyOfRules(model.Ingress, denied, allowFrom("a"), other), openEgress, fmt.Sprint("10.0.0.", i+1)))
	}
	members := map[model.SetID][]netip.Prefix{"a": policytest.Prefixes("10.0.0.100/32", "10.0.0.101/32"), "b": policytest.Prefixes("10.0.0.103/32"),
		"denied": policytest.Prefixes("10.0.0.104/32")}
	k, c := newKernel(), New(Options{Limits: table.Limits{Again: 1}, StandIns: true}, nil)
	k.refuses = true
	before := state(members, endpoints...)
	carryOut(k, c.Update(before.changes(nil)))
	members = maps.Clone(members)
	members["b"] = policytest.Prefixes("10.0.0.100/32", "10.0.0.103/32")
	members["denied"] = policytest.Prefixes("10.0.0.101/32", "10.0.0.104/32")
	ch := state(members, endpoints...).changes(before)
	for plans := 1; plans <= pods; plans++ {
		p := c.Update(ch)
		carryOut(k, p)
		for _, tab := range c.Tables() {
			class := c.classes.Lookup(netip.MustParseAddr("10.0.0.100")).Class
			own, _ := c.classes.Class(class)
			if got, _ := tab.RowOf(class); tab.Direction == model.Ingress && tab.JudgedBy(own) != got {
				t.Errorf("after plan %d: chains of table %d have row %d, and the plan %d", plans, tab.ID, tab.JudgedBy(own), got)
			}
		}
		for src, want := range map[string]int{"10.0.0.100": pods, "10.0.0.101": 0} {
			n := 0
			for _, e := range endpoints {
				v, _, err := k.judge(e.ID, model.Ingress, model.Packet{Src: netip.MustParseAddr(src), Dst: e.Addrs[0], Protocol: 6, DstPort: 80})
				if err != nil {
					t.Fatal(err)
				}
				if v.Allow {
					n++
				}
			}
			if n != want {
				t.Errorf("after plan %d: %s is allowed by %d, want %d", plans, src, n, want)
			}
		}
		if more := plans < pods; p.More != more {
			t.Errorf("plan %d: more %v, want %v", plans, p.More, more)
		}
		ch = model.Changes{InSync: true}
	}
}
