package agent_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/corpus"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/agent"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/dataplane"
	bpfplane "github.com/margay-project/margay/pkg/dataplane/bpf"
	"github.com/margay-project/margay/pkg/health"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/metrics"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/verify"
)

// verified is a loop with a dataplane, without interfaces, and its Verifier.
type verified struct {
	*agent.Loop
	*agent.Verifier
	store *syncer.Memory
	plane dataplane.Dataplane
	dp    *bpfplane.BPF     // the dataplane, on real maps; nil: it is another one
	links map[string]uint32 // numbers of interfaces
	nudge func(time.Duration)
	put   map[model.Key]model.Update
	marks int
}

// marker is a remote endpoint whose label is the number of the last change.
var marker = model.WorkloadID("mark", "er")

func runVerified(t testing.TB, configure func(*dataplane.Config)) *verified {
	t.Helper()
	testutil.Privileged(t)
	c := dataplane.Defaults()
	c.BPFFS = testutil.BPFFS(t)
	configure(&c)
	host := bpfplane.NewFakeHost()
	dp, err := bpfplane.OpenBPF(c, host, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	v := &verified{dp: dp, links: host.Ifaces, nudge: host.Nudge}
	v.run(t, dp, dp.Verifier())
	return v
}

// run starts the loop on a dataplane.
func (v *verified) run(t testing.TB, plane dataplane.Dataplane, k verify.Kernel) {
	t.Helper()
	v.plane, v.store, v.put = plane, syncer.NewMemory(), map[model.Key]model.Update{}
	log := slog.New(slog.DiscardHandler)
	// A resync of its own would repair damage before it is looked for: these tests may take minutes.
	settings, _, err := config.New(config.Local{Host: "n", Flags: []config.Flag{{Name: "resync-every", Value: "1h"}}})
	if err != nil {
		t.Fatal(err)
	}
	counts, err := metrics.New(metrics.Options{Read: func(context.Context) (metrics.Snapshot, error) { return metrics.Snapshot{}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	v.Loop = agent.New(agent.Options{Node: "n", Source: v.store, Graph: calc.New("n"), Dataplane: plane, Log: log, Settings: settings,
		Metrics: counts, Health: health.New(time.Now)})
	v.Verifier = agent.NewVerifier(v.Loop, k, counts, log)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- v.Loop.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := plane.Close(); err != nil {
			t.Error(err)
		}
	})
	v.store.Sync()
	<-v.InSync()
}

// query asks the loop.
func (v *verified) query(t testing.TB, do func(agent.View)) {
	t.Helper()
	if err := v.Query(t.Context(), do); err != nil {
		t.Fatal(err)
	}
}

// change puts updates and waits until they are enforced, as far as they can be.
func (v *verified) change(t testing.TB, updates ...model.Update) {
	t.Helper()
	v.query(t, func(agent.View) {
		for _, u := range updates {
			if ep, ok := u.(model.EndpointUpdate); ok && ep.Endpoint != nil && ep.Endpoint.Iface != "" && v.links[ep.Endpoint.Iface] == 0 {
				v.links[ep.Endpoint.Iface] = uint32(1000 + len(v.links))
			}
		}
	})
	v.marks++
	mark := strconv.Itoa(v.marks)
	v.store.Put(append(updates, model.EndpointUpdate{ID: marker, Endpoint: &model.Endpoint{Node: "other",
		Addrs: []netip.Addr{netip.MustParseAddr("198.51.100.1")}, Labels: map[string]string{"mark": mark}}})...)
	testutil.WaitFor(t, 3*time.Minute, "the change to be enforced", func() bool {
		seen, pending := false, false
		v.query(t, func(view agent.View) {
			ep, ok := view.Graph.FindEndpoint(marker)
			seen = ok && ep.Labels["mark"] == mark
			for _, s := range v.plane.Endpoints() {
				pending = pending || s.Condition == dataplane.Pending
			}
		})
		return seen && !pending
	})
}

// replace makes the updates all there is.
func (v *verified) replace(t testing.TB, updates []model.Update) {
	t.Helper()
	gone := v.put
	v.put = map[model.Key]model.Update{}
	for _, u := range updates {
		if k, present := model.KeyOf(u); present && k != model.InSyncKey {
			v.put[k] = u
			delete(gone, k)
		}
	}
	var all []model.Update
	for _, u := range gone {
		all = append(all, model.Absent(u))
	}
	for _, u := range v.put {
		all = append(all, u)
	}
	v.change(t, all...)
}

func (v *verified) verify(t testing.TB) *inspect.Verification {
	t.Helper()
	report, err := v.Verifier.Run(t.Context(), model.EndpointID{})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// textOf is the beginning of a verification in words.
func textOf(r *inspect.Verification) string {
	text := ""
	for _, d := range r.Differences {
		text += d.Text + "\n"
	}
	return fmt.Sprintf("%s%+v", text[:min(len(text), 1000)], r.NotProven)
}

// local makes all endpoints of a random cluster local ones.
func local(updates []model.Update) []model.Update {
	for i, u := range updates {
		if ep, ok := u.(model.EndpointUpdate); ok && ep.Endpoint != nil {
			own := *ep.Endpoint
			own.Node, own.Iface = "n", fmt.Sprintf("cali%d", i)
			updates[i] = model.EndpointUpdate{ID: ep.ID, Endpoint: &own}
		}
	}
	return updates
}

// TestVerifyProvesRandomPolicies: whatever is enforced is proven, and nothing is reported that is not there.
func TestVerifyProvesRandomPolicies(t *testing.T) {
	for name, configure := range map[string]func(*dataplane.Config){
		"tables": func(*dataplane.Config) {}, "wide tables": func(c *dataplane.Config) { c.Wide = true },
		"interpreter": func(c *dataplane.Config) { c.Interpret = true },
	} {
		t.Run(name, func(t *testing.T) {
			v := runVerified(t, configure)
			questions, endpoints := 0, 0
			rapid.Check(t, func(rt *rapid.T) {
				v.replace(t, local(corpus.DrawModel(rt)))
				report := v.verify(t)
				for _, d := range report.Differences {
					rt.Errorf("%s", d.Text)
				}
				for _, n := range report.NotProven {
					rt.Logf("not proven: %+v", n)
				}
				questions, endpoints = questions+report.Questions, endpoints+report.Endpoints
			})
			t.Logf("%d endpoints proven by %d packets", endpoints, questions)
			if endpoints == 0 {
				t.Error("nothing was proven")
			}
		})
	}
}

// shop are three local pods: web, which others may reach on port 80, db, which web may reach, and other, which may send from
// a further prefix and has a staged policy.
func shop() []model.Update {
	tcp := model.ProtoTCP
	pod := func(name, iface, app string, addrs ...string) model.Update {
		ep := &model.Endpoint{Node: "n", Iface: iface, Labels: map[string]string{"app": app}}
		for _, a := range addrs {
			ep.Addrs = append(ep.Addrs, netip.MustParseAddr(a))
		}
		if app == "other" {
			ep.Sources = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}
		}
		return model.EndpointUpdate{ID: model.WorkloadID("shop", name), Endpoint: ep}
	}
	rule := func(from string, port uint16, nets ...string) model.Rule {
		r := model.Rule{Action: model.Allow, Protocol: &tcp, Destination: model.Entity{Ports: []model.PortRange{{Lo: port, Hi: port}}}}
		if from != "" {
			r.Source.Selector = selector.Equal("app", from)
		}
		for _, n := range nets {
			r.Source.Nets = append(r.Source.Nets, netip.MustParsePrefix(n))
		}
		return r
	}
	policy := func(kind model.PolicyKind, name, app string, rules ...model.Rule) model.Update {
		for i := range rules {
			rules[i].Index = i
		}
		return model.PolicyUpdate{Key: model.PolicyKey{Kind: kind, Name: name}, Policy: &model.Policy{Staged: kind != model.KindGlobalNetworkPolicy,
			Tier: model.TierDefault, Order: 1, Selector: selector.Equal("app", app), AppliesIngress: true, Ingress: rules}}
	}
	return []model.Update{
		pod("web", "caliweb", "web", "10.0.0.1", "fd00::1"), pod("db", "calidb", "db", "10.0.0.2", "fd00::2"), pod("other", "caliother", "other", "10.0.0.3"),
		policy(model.KindGlobalNetworkPolicy, "web", "web", rule("", 80), rule("", 8080, "192.0.2.0/24", "198.51.100.0/25")),
		policy(model.KindGlobalNetworkPolicy, "db", "db", rule("web", 5432)),
		policy(model.KindStagedGlobalNetworkPolicy, "later", "other", rule("web", 9090)),
		model.NodeUpdate{Name: "n", Node: &model.Node{Addrs: []netip.Addr{netip.MustParseAddr("192.168.0.1")}}},
		model.ServiceUpdate{Key: model.ServiceKey{Namespace: "shop", Name: "web"}, Service: &model.Service{Cluster: []netip.Addr{netip.MustParseAddr("10.96.0.1")}}},
	}
}
