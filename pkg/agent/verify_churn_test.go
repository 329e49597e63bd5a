package agent_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// TestVerifyWhilePoliciesAndPodsChange: what changes while it is compared is never reported, and what does not change is proven.
func TestVerifyWhilePoliciesAndPodsChange(t *testing.T) {
	t.Run("bpf", func(t *testing.T) { verifyWhileThingsChange(t, runVerified(t, func(*dataplane.Config) {}), 40) })
	for _, backend := range backends {
		t.Run("iptables-"+string(backend), func(t *testing.T) {
			v, _ := runFakeChained(t, backend)
			verifyWhileThingsChange(t, v.verified, 5)
		})
	}
}

// TestVerifyFindsDamageWhilePoliciesAndPodsChange: no packet of a policy's kinds meets the altered chain or entry, and on a busy node
// there is no moment without writes.
func TestVerifyFindsDamageWhilePoliciesAndPodsChange(t *testing.T) {
	for _, backend := range backends {
		t.Run(string(backend), func(t *testing.T) {
			v, fake := runFakeChained(t, backend)
			v.replace(t, shop())
			if err := fake.Load(iptables.V4, "*mangle\n:mgyA-revoked - [0:0]\nCOMMIT\n"); err != nil {
				t.Fatal(err)
			}
			foreign := ipsets.Change{Entry: ipsets.Entry{Key: ipsets.Key{Prefix: netip.MustParsePrefix("10.7.7.7/32"), Interface: "caliother"}}}
			spec := ipsets.Spec{Name: "mgyA4-own", Type: ipsets.NetInterface, Family: ipsets.IPv4}
			if _, err := v.sets.Write(spec, []ipsets.Change{foreign}); err != nil {
				t.Fatal(err)
			}
			stop := v.flips(t)
			for range 2 {
				report := textOf(v.verify(t))
				for _, want := range []string{"chain mgyA-revoked: it has 0 rules", "IP set mgyA4-own has the entry 10.7.7.7/32,caliother"} {
					if !strings.Contains(report, want) {
						t.Errorf("nothing with %q is reported, but:\n%s", want, report)
					}
				}
			}
			stop()
		})
	}
}

// flips makes changes, one after the other, until it is stopped. stop returns their number.
func (v *verified) flips(t *testing.T) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				ended <- n
				return
			case <-time.After(3 * time.Millisecond):
				v.store.Put(flip(n)...)
			}
		}
	}()
	return func() int {
		cancel()
		return <-ended
	}
}

func verifyWhileThingsChange(t *testing.T, v *verified, times int) {
	t.Helper()
	v.replace(t, shop())
	stop := v.flips(t)
	proven, unproven, questions := 0, 0, 0
	for range times {
		r := v.verify(t)
		for _, d := range r.Differences {
			t.Errorf("reported while things change: %s", d.Text)
		}
		proven, unproven, questions = proven+r.Endpoints, unproven+len(r.NotProven), questions+r.Questions
		for _, n := range r.NotProven {
			if n.Name == "other" {
				t.Errorf("its policy does not change: %+v", n)
			}
			if n.Part != "" {
				t.Errorf("what the agent has written meanwhile is known: %+v", n)
			}
		}
	}
	t.Logf("%d changes; %d endpoints proven by %d packets, %d changed all the time", stop(), proven, questions, unproven)
	if proven < times {
		t.Errorf("%d endpoints were proven", proven)
	}
	v.change(t)
	if r := v.verify(t); !r.Proven {
		t.Errorf("once nothing changes: %s", textOf(r))
	}
}

// flip is the n-th change: another port for web's clients of db, and pods that come and go.
func flip(n int) []model.Update {
	tcp := model.ProtoTCP
	policy := &model.Policy{Tier: model.TierDefault, Order: 1, Selector: selector.Equal("app", "db"), AppliesIngress: true, Ingress: []model.Rule{{
		Action: model.Allow, Protocol: &tcp, Source: model.Entity{Selector: selector.Equal("app", []string{"web", "client"}[n/3%2])},
		Destination: model.Entity{Ports: []model.PortRange{{Lo: 5432, Hi: uint16(5432 + n%5)}}}}}}
	var pod *model.Endpoint
	if n%2 == 0 {
		pod = &model.Endpoint{Node: "far", Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 0, byte(n % 7)})}, Labels: map[string]string{"app": "client"}}
	}
	return []model.Update{
		model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "db"}, Policy: policy},
		model.EndpointUpdate{ID: model.WorkloadID("shop", fmt.Sprintf("client-%d", n%7)), Endpoint: pod},
	}
}
