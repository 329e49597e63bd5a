package cluster

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
)

// churn is what a test of leaks does.
type churn struct {
	rounds, warm  int     // rounds that count, and those before, which bring into being what is there for good
	remote, local int     // pods that come and go in a round
	bytes         float64 // by which the heap may grow per pod that came and went
}

// leakedRoutines is how much the number of goroutines may grow per pod that came and went: less than one for each local
// pod would make, since one pod in twenty is local.
const leakedRoutines = .01

// Pods that come and go leave nothing behind in the agent, nor in the kernel: neither memory nor goroutines, nor entries
// of maps. A remote pod that is not forgotten costs 500 bytes or more, and a name alone, which nobody had before, 64 in
// some map. So the whole 95 % interval of the slope over the rounds is to be below that; the short run, of too few rounds
// for an interval, compares the last with the first and is about whole pods.
func TestPodsThatComeAndGoLeaveNothingBehind(t *testing.T) {
	k := churn{rounds: 4, warm: 1, remote: 285, local: 15, bytes: 200}
	if long() {
		k = churn{rounds: 10, warm: 2, remote: 950, local: 50, bytes: 64}
	}
	c := newCluster(t, options{nodes: 1, proxy: "none", flags: measured})
	p := c.newPopulation()
	r := p.newResidents()
	r.settleTo(residentApps) // each policy stays
	p.grow(k.remote)         // so does each namespace
	a := c.nodes[0].agent
	a.awaitLocal(len(r.all), p.pods+len(r.all))

	var heap, routines, rss []float64
	var maps []gauges
	for round := range k.warm + k.rounds {
		r.comeAndGo(a, k, round)
		if round < k.warm {
			continue
		}
		status, err := procStatus(a.running.PID()) // as it is, before garbage is asked to be collected
		c.must(err)
		h, g := a.live()
		heap, routines, rss = append(heap, h), append(routines, g), append(rss, status["VmRSS"])
		maps = append(maps, a.gauges())
		t.Logf("round %d: heap %.0f kB after collection, RSS %.1f MB, %.0f goroutines", round, h/1e3, status["VmRSS"]/1e6, g)
	}
	pods := float64(k.remote + k.local)
	perPod, perRoutine := testutil.Regress(heap).Scaled(1/pods), testutil.Regress(routines).Scaled(1/pods)
	t.Logf("per pod that came and went: heap %s bytes, RSS %s bytes, goroutines %s", perPod, testutil.Regress(rss).Scaled(1/pods), perRoutine)
	if !long() {
		perPod, perRoutine = difference(heap).Scaled(1/pods), difference(routines).Scaled(1/pods)
	}
	if perPod.High() > k.bytes {
		t.Errorf("the heap grows by %s bytes per pod, more than %g may be", perPod, k.bytes)
	}
	if perRoutine.High() > leakedRoutines {
		t.Errorf("goroutines grow by %s per pod", perRoutine)
	}
	wantSameEntries(t, maps)
}

// wantSameEntries demands that maps of what is desired have as many entries after the last round as after the first.
// Flows and counters of packets are not part of that.
func wantSameEntries(t *testing.T, rounds []gauges) {
	t.Helper()
	first, last := rounds[0], rounds[len(rounds)-1]
	compared := 0
	for name, v := range last {
		isMap := strings.HasPrefix(name, "margay_map_entries{")
		if !isMap && !slices.Contains([]string{"margay_tables", "margay_classes", "margay_kernel_sets", "margay_rules", "margay_sets", "margay_set_members", "margay_remote_endpoints"}, name) {
			continue
		}
		if isMap && (strings.Contains(name, `map="ct`) || strings.Contains(name, `map="nf_conntrack"`) || strings.Contains(name, `map="open_flows_in_common"`)) {
			continue
		}
		if isMap && strings.Contains(name, `map="generations"`) { // each change uses some, and they begin again
			continue
		}
		compared++
		if v != first[name] {
			t.Errorf("%s: %g after the first round, %g after the last", name, first[name], v)
		}
	}
	if compared < 10 {
		t.Errorf("only %d numbers were compared", compared)
	}
}

// comeAndGo makes pods of this round, waits until the agent has them, and has them go.
func (r *residents) comeAndGo(a *agent, k churn, round int) {
	r.c.t.Helper()
	first := 1_000_000 + round*k.remote // nobody had these names and addresses before
	local := make([]*resident, k.local)
	r.c.each(k.local+k.remote, func(ctx context.Context, i int) (err error) {
		if i >= k.local {
			pod := remotePod(first + i - k.local)
			pod.Namespace = remoteNamespace(0)
			return r.create(ctx, pod)
		}
		if local[i], err = r.plug(ctx, residentSpace, ""); err != nil {
			return err
		}
		return r.tell(ctx, local[i])
	})
	a.awaitLocal(len(r.all)+k.local, r.pods+len(r.all)+k.local+k.remote)
	r.c.each(k.local+k.remote, func(ctx context.Context, i int) error {
		if i >= k.local {
			return r.forget(ctx, remoteNamespace(0), remotePod(first+i-k.local).Name)
		}
		return r.remove(ctx, local[i])
	})
	a.awaitLocal(len(r.all), r.pods+len(r.all))
}

// difference is the slope from the first value to the last, of which nothing more is known.
func difference(y []float64) testutil.Slope {
	return testutil.Slope{Value: (y[len(y)-1] - y[0]) / float64(len(y)-1)}
}
