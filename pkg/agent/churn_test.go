package agent

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// A round creates and deletes this many pods, one in a hundred of them local.
const (
	churnRounds = 10
	churnPods   = 5_000
)

// churnPod is a pod whose name, address and one of its labels nobody has had before.
func churnPod(n int) model.EndpointUpdate {
	ep := &model.Endpoint{
		Node:  fmt.Sprintf("node-%d", n%500),
		Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})},
		Labels: map[string]string{
			selector.NamespaceLabel: "shop", "app": fmt.Sprintf("app-%d", n%20), "pod-template-hash": fmt.Sprintf("%x", n/50),
			"statefulset.kubernetes.io/pod-name": fmt.Sprintf("db-%d", n),
		},
		Profiles: []string{"kns.shop", "ksa.shop.default"},
		Ports:    []model.NamedPort{{Name: "http", Protocol: model.ProtoTCP, Port: 8080}},
	}
	if n%100 == 0 {
		ep.Node, ep.Iface = "n", fmt.Sprintf("cali%d", n)
	}
	return model.EndpointUpdate{ID: model.WorkloadID("shop", fmt.Sprintf("db-%d", n)), Endpoint: ep}
}

// churnStays is how many local pods stay, so that policy does.
const churnStays = 20

// churnPolicies apply to the local pods, and have sets that all pods come into and go from. One pod stays for each.
func churnPolicies() []model.Update {
	all := []model.Update{model.ProfileUpdate{Name: "kns.shop", Profile: &model.Profile{
		Labels: map[string]string{"pcns.env": "prod"}, Ingress: []model.Rule{{Action: model.Allow}},
	}}}
	for i := range churnStays {
		p := &model.Policy{Tier: model.TierDefault, Order: 1, Selector: selector.Equal("app", fmt.Sprintf("app-%d", i)), AppliesIngress: true}
		p.Ingress = []model.Rule{
			{Action: model.Allow, Source: model.Entity{Selector: selector.Equal("app", fmt.Sprintf("app-%d", (i+1)%20))}},
			{Action: model.Allow, Index: 1, Source: model.Entity{Selector: selector.Equal("pcns.env", "prod")},
				Destination: model.Entity{NamedPorts: []string{"http"}}},
		}
		stays := churnPod(0xf00000 + i)
		stays.Endpoint.Node, stays.Endpoint.Iface = "n", fmt.Sprintf("cali-stays-%d", i)
		stays.Endpoint.Labels["app"] = fmt.Sprintf("app-%d", i)
		all = append(all, stays, model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: fmt.Sprint(i)}, Policy: p})
	}
	return all
}

// setless is a dataplane that keeps no members of sets: the maps of the fake would grow, and not be the agent's.
type setless struct{ *dataplane.Fake }

func (d setless) Apply(ctx context.Context, c model.Changes) error {
	c.Sets = nil
	return d.Fake.Apply(ctx, c)
}

func TestMemoryReturnsToItsLevelWhenPodsComeAndGo(t *testing.T) {
	runWith(t, func(dp *dataplane.Fake) dataplane.Dataplane { return setless{dp} }, func(t *testing.T, r *rig) {
		r.store.Put(churnPolicies()...)
		r.store.Sync()
		synctest.Wait()
		var heap, goroutines []float64
		for round := range churnRounds + 2 {
			churn(t, r, round*churnPods)
			if round < 2 {
				continue // what is there for good comes into being
			}
			heap = append(heap, liveHeap())
			goroutines = append(goroutines, float64(runtime.NumGoroutine()))
		}
		perPod := testutil.Regress(heap).Scaled(1.0 / churnPods)
		routines := testutil.Regress(goroutines)
		t.Logf("live heap: %.0f bytes at the end of the first round, %.0f of the last; slope %s bytes per pod that came and went",
			heap[0], heap[len(heap)-1], perPod)
		t.Logf("goroutines: %.0f and %.0f; slope %s per round of %d pods", goroutines[0], goroutines[len(goroutines)-1], routines, churnPods)
		if perPod.Low() > 1 {
			t.Errorf("the heap grows by %s bytes per pod", perPod)
		}
		if perPod.Margin > 20 {
			t.Errorf("the heap's slope is too uncertain to tell anything: %s bytes per pod", perPod)
		}
		if routines.Low() > 0 {
			t.Errorf("goroutines grow by %s a round", routines)
		}
	})
}

// churn lets pods come and, once they are enforced, go.
func churn(t *testing.T, r *rig, first int) {
	t.Helper()
	const atOnce = 1000
	for from := first; from < first+churnPods; from += atOnce {
		for n := range atOnce {
			r.store.Put(churnPod(from + n))
		}
		synctest.Wait()
	}
	if n := len(r.dp.State().Endpoints); n != churnPods/100+churnStays {
		t.Fatalf("%d endpoints are enforced, want %d", n, churnPods/100+churnStays)
	}
	for from := first; from < first+churnPods; from += atOnce {
		for n := range atOnce {
			r.store.Put(model.Absent(churnPod(from + n)))
		}
		synctest.Wait()
	}
	if n := len(r.dp.State().Endpoints); n != churnStays {
		t.Fatalf("%d endpoints are left, want %d", n, churnStays)
	}
}

func liveHeap() float64 {
	for range 3 { // weak pointers and what they pointed to take more than one
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
