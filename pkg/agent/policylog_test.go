package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
	"github.com/margay-project/margay/pkg/syncer"
)

// isolating is a policy of the namespace for all its pods, with a number of rules that allow everything.
func isolating(t *testing.T, namespace, name string, rules int) model.PolicyUpdate {
	t.Helper()
	all, err := selector.Parse(fmt.Sprintf(`projectcalico.org/namespace == %q`, namespace))
	if err != nil {
		t.Fatal(err)
	}
	p := &model.Policy{Tier: "default", Order: 1000, Selector: all, AppliesIngress: true}
	for i := range rules {
		p.Ingress = append(p.Ingress, model.Rule{Action: model.Allow, Index: i})
	}
	return model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindKubernetesNetworkPolicy, Namespace: namespace, Name: name}, Policy: p}
}

func removed(p model.PolicyUpdate) model.PolicyUpdate {
	p.Policy = nil
	return p
}

// inSpace is a pod with the label of its namespace.
func inSpace(i int) model.EndpointUpdate {
	p := pod(i)
	p.Endpoint.Labels = map[string]string{"projectcalico.org/namespace": "t"}
	return p
}

// policyLogged are the log's lines about policies since the last call, without their times.
func (r *rig) policyLogged() []string {
	var lines []string
	for line := range strings.Lines(r.log.String()) {
		if _, text, ok := strings.Cut(line, "msg=\"polic"); ok {
			text, _, _ = strings.Cut("polic"+strings.TrimSpace(text), " took=")
			lines = append(lines, text)
		}
	}
	r.log.Reset()
	return lines
}

func (r *rig) wantPolicyLogged(t *testing.T, want ...string) {
	t.Helper()
	if got := r.policyLogged(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("logged\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func TestEveryEffectivePolicyChangeIsLoggedOnce(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.put(inSpace(1), inSpace(2), isolating(t, "t", "first", 1))
		r.store.Sync()
		synctest.Wait()
		r.wantPolicyLogged(t) // the first snapshot is one line of its own
		r.put(isolating(t, "t", "db", 1))
		r.wantPolicyLogged(t, `policy added" policy="NetworkPolicy t/db" endpoints=2`)
		r.put(isolating(t, "t", "db", 2))
		r.wantPolicyLogged(t, `policy changed" policy="NetworkPolicy t/db" endpoints=2`)
		r.put(isolating(t, "t", "db", 2), isolating(t, "elsewhere", "db", 2))
		r.wantPolicyLogged(t) // it says what it said; the other is no pod's here
		r.put(inSpace(3))
		r.wantPolicyLogged(t) // no policy has changed
		r.put(removed(isolating(t, "t", "db", 0)), isolating(t, "t", "first", 3))
		r.wantPolicyLogged(t, `policy removed" policy="NetworkPolicy t/db" endpoints=3`, `policy changed" policy="NetworkPolicy t/first" endpoints=3`)
	})
}

func TestAPolicyChangeIsLoggedOnceItIsEnforced(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.put(inSpace(1))
		r.store.Sync()
		synctest.Wait()
		r.dp.Set(dataplane.FakeSettings{ApplyErr: errors.New("no"), Failures: 2})
		r.put(isolating(t, "t", "db", 1))
		r.wantPolicyLogged(t, `policy is not fully enforced, what was written before is left as it is; will try again" err=no`)
		time.Sleep(time.Minute)
		synctest.Wait()
		r.wantPolicyLogged(t, `policy is fully enforced again"`, `policy added" policy="NetworkPolicy t/db" endpoints=1`)
	})
}

// A policy that comes with new labels of its Namespace waits in the graph until all pods have these. It is logged when it takes effect, and
// policies that have not changed are not.
func TestAPolicyThatWaitsForLabelsIsLogged(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		space := func(team string) model.ProfileUpdate {
			return model.ProfileUpdate{Name: model.NamespaceProfile("t"), Profile: &model.Profile{Labels: map[string]string{"pcns.team": team}}}
		}
		team := isolating(t, "t", "team", 1)
		team.Policy.Selector = selector.Equal("pcns.team", "b")
		updates := []model.Update{space("a"), team, isolating(t, "t", "stays", 1)}
		for i := range 3 * syncer.MostAddresses {
			p := inSpace(i)
			p.Endpoint.Profiles = []string{model.NamespaceProfile("t")}
			if i > 0 {
				p.Endpoint.Node = "another"
			}
			updates = append(updates, p)
		}
		r.put(updates...)
		r.store.Sync()
		synctest.Wait()
		r.policyLogged()
		r.passes.take()
		db := isolating(t, "t", "db", 1)
		r.put(space("b"), db)
		passes := r.passes.take()
		if first := passes[0]; !slices.Contains(first.Batch.Policies, db.Key) || len(first.Flush.Changes.Endpoints) != 1 {
			t.Errorf("the first of %d passes has policies %v and changes %d endpoints", len(passes), first.Batch.Policies, len(first.Flush.Changes.Endpoints))
		}
		if ep := passes[0].Flush.Changes.Endpoints[podID(0)]; ep == nil || len(ep.Ingress.Tiers) != 1 || len(ep.Ingress.Tiers[0].Policies) != 2 {
			t.Errorf("with the first pass the pod has %+v: want the two policies of before, since the third waits", ep)
		}
		r.wantPolicyLogged(t, `policy added" policy="NetworkPolicy t/db" endpoints=1`)
		r.put(pod(1)) // of another Namespace from now on
		r.put(space("a"))
		r.wantPolicyLogged(t) // no policy has changed
	})
}

// A tenant who changes policies all the time costs the log a bounded number of lines, and keeps no other namespace's out.
func TestPoliciesDoNotFloodTheLog(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		other := pod(2)
		other.ID.Namespace, other.Endpoint.Labels = "o", map[string]string{"projectcalico.org/namespace": "o"}
		r.put(inSpace(1), other)
		r.store.Sync()
		synctest.Wait()
		r.policyLogged()
		for i := range 100 {
			r.put(isolating(t, "t", "noisy", 1+i%2))
		}
		r.put(isolating(t, "o", "quiet", 1))
		lines := r.policyLogged()
		if len(lines) != namespaceLines+1 || !strings.Contains(lines[namespaceLines], "o/quiet") {
			t.Errorf("%d lines of 101 changes, want %d, the last of o/quiet:\n%s", len(lines), namespaceLines+1, strings.Join(lines, "\n"))
		}
		time.Sleep(policyWindow + 2*lookEvery)
		synctest.Wait()
		r.wantPolicyLogged(t, fmt.Sprintf(`policies changed that are not logged one by one" more=%d within=1m0s`, 100-namespaceLines))
		r.put(isolating(t, "t", "noisy", 5))
		r.wantPolicyLogged(t, `policy changed" policy="NetworkPolicy t/noisy" endpoints=1`)
	})
}

// While nothing can be enforced, a tenant may make policies with ever new names.
func TestChangesThatWaitAreBounded(t *testing.T) {
	var out strings.Builder
	p := newPolicyLog(slog.New(slog.NewTextHandler(&out, nil)))
	const all = mostNotedPolicy + 100
	for i := range all {
		p.change(isolating(t, "t", fmt.Sprint("made-", i), 1).Key, model.WorkloadID("t", "pod"), false, true)
	}
	if n := len(p.pending); n != mostNotedPolicy {
		t.Errorf("%d changes wait, want %d", n, mostNotedPolicy)
	}
	began := time.Now()
	p.enforced(began)
	p.tick(began.Add(policyWindow))
	for _, want := range []string{fmt.Sprint("more=", mostNotedPolicy-namespaceLines), "than the log can name"} {
		if n := strings.Count(out.String(), want); n != 1 {
			t.Errorf("logged\n%s\nwant %q once", out.String(), want)
		}
	}
	out.Reset()
	p.change(isolating(t, "t", "later", 1).Key, model.WorkloadID("t", "pod"), false, true)
	p.enforced(began.Add(policyWindow))
	if strings.Contains(out.String(), "than the log can name") {
		t.Errorf("logged again:\n%s", out.String())
	}
}

// Policies that wait in the graph are noted up to a bound. Those that have waited for longest keep their place.
func TestUpdatesThatArePostponedAreBounded(t *testing.T) {
	p := newPolicyLog(slog.New(slog.DiscardHandler))
	keys := make([]model.PolicyKey, 3*mostNotedPolicy)
	for i := range keys {
		keys[i] = model.PolicyKey{Kind: model.KindKubernetesNetworkPolicy, Namespace: "t", Name: fmt.Sprint("p-", i)}
	}
	first, others := keys[:100], keys[100:]
	p.note(first)
	p.forget(first[:90]) // ten take effect
	p.note(others)
	p.forget(slices.Concat(others[:2*mostNotedPolicy], first[:80]))
	if len(p.noted) != 0 || len(p.later) != mostNotedPolicy {
		t.Errorf("%d noted, %d later; want 0, %d", len(p.noted), len(p.later), mostNotedPolicy)
	}
	for i, key := range first {
		if p.later[key] != (i < 80) {
			t.Errorf("%s waits: %t", key.Name, p.later[key])
		}
	}
	if p.forget(nil); len(p.later) != 0 {
		t.Errorf("%d wait although nothing is postponed", len(p.later))
	}
}

// A tenant has thousands of policies for each of its pods, which differ from one another, and changes one all the time. Before, the log
// compared all policies of all pods, and each change kept the loop for 1 s longer.
func TestThePoliciesThatStayCostTheLogNothing(t *testing.T) {
	const pods, few, many, most = 120, 30, 3000, 20
	changed := isolating(t, "t", "changed", 1).Key
	cost := func(policies int) time.Duration {
		p := newPolicyLog(slog.New(slog.DiscardHandler))
		stay := make([]*model.PolicyRules, policies)
		for i := range stay {
			stay[i] = &model.PolicyRules{Key: isolating(t, "t", fmt.Sprint("p-", i), 1).Key}
		}
		changes := func() model.Changes {
			all := map[model.EndpointID]*model.EndpointPolicy{}
			now := &model.PolicyRules{Key: changed}
			for i := range pods {
				list := slices.Concat(stay[:i%few], []*model.PolicyRules{now}, stay[i%few+1:])
				d := &model.DirectionPolicy{Tiers: []model.TierPolicy{{Name: "default", Policies: list}}}
				all[podID(i)] = &model.EndpointPolicy{ID: podID(i), Ingress: d, Egress: d}
			}
			return model.Changes{Endpoints: all}
		}
		p.flushed(changes(), true, time.Now())
		next, n := [2]model.Changes{changes(), changes()}, 0 // in turn: each is another one than before
		return testutil.LeastCPUTime(t, func() {
			n++
			p.note([]model.PolicyKey{changed})
			p.flushed(next[n%2], false, time.Now())
			if len(p.pending[changed].endpoints) != pods {
				t.Errorf("a change of %d pods counts as one of %d", pods, len(p.pending[changed].endpoints))
			}
			clear(p.pending)
		})
	}
	least, all := cost(few), cost(many)
	t.Logf("with %d policies: %s, with %d: %s", few, least, many, all)
	if all > most*least {
		t.Errorf("a change costs the log %s with %d policies, and %s with %d", least, few, all, many)
	}
}

// However much changes at once, the log looks at so much and says that there is more.
func TestTheLogComparesSoManyPolicies(t *testing.T) {
	var out strings.Builder
	p := newPolicyLog(slog.New(slog.NewTextHandler(&out, nil)))
	changes := model.Changes{Endpoints: map[model.EndpointID]*model.EndpointPolicy{}}
	list := slices.Repeat([]*model.PolicyRules{{Key: isolating(t, "t", "p", 1).Key}}, mostCompared/2)
	for i := range 3 {
		d := &model.DirectionPolicy{Tiers: []model.TierPolicy{{Name: "default", Policies: list}}}
		changes.Endpoints[podID(i)] = &model.EndpointPolicy{ID: podID(i), Ingress: d, Egress: d}
	}
	p.note([]model.PolicyKey{list[0].Key})
	p.flushed(changes, false, time.Now())
	if n := len(p.pending[list[0].Key].endpoints); n != 1 {
		t.Errorf("%d endpoints, want 1", n)
	}
	began := time.Now()
	for i := range 20 { // a tenant has it so with each change
		p.note([]model.PolicyKey{list[0].Key})
		p.local = map[model.EndpointID]*model.EndpointPolicy{}
		p.flushed(changes, false, began)
		p.enforced(began.Add(time.Duration(i) * time.Second))
	}
	if n := strings.Count(out.String(), "than the log can name"); n != 1 {
		t.Errorf("%d times in one window:\n%s", n, out.String())
	}
	p.crowded = true
	p.enforced(began.Add(policyWindow))
	if n := strings.Count(out.String(), "than the log can name"); n != 2 {
		t.Errorf("%d times in two windows:\n%s", n, out.String())
	}
}
