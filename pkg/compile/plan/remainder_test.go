package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/model"
)

// written is what is left of a plan that is written.
var written = Remainder{Moved: true, Bound: true, Rejudged: true}

// names are those of endpoints, in order; those of shadows with a mark.
func names(ids map[model.EndpointID]bool) []string {
	list := []string{}
	for id := range ids {
		name := id.Name
		if isShadow(id) {
			name += " staged"
		}
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// wantBehind checks which endpoints a remainder concerns.
func wantBehind(t *testing.T, c *Compiler, what string, r Remainder, want ...string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), names(r.Endpoints(c))); diff != "" {
		t.Errorf("%s: %s", what, diff)
	}
}

// newBehind returns a compiler with web, which allows from set a, and db, which allows from set b; and the present state.
func newBehind(t *testing.T) (*Compiler, *cluster) {
	t.Helper()
	c, k := New(Options{Confirm: true}, nil), newKernel()
	now := state(map[model.SetID][]netip.Prefix{"a": policytest.Prefixes("10.0.1.1/32"), "b": policytest.Prefixes("10.0.1.1/32", "10.0.1.2/32")},
		endpointPolicy("web", policyOfRules(model.Ingress, allowFrom("a")), openEgress, "10.0.0.1"),
		endpointPolicy("db", policyOfRules(model.Ingress, allowFrom("b")), openEgress, "10.0.0.11"))
	for p := c.Update(now.changes(nil)); ; p = c.Update(model.Changes{InSync: true}) {
		carryOut(k, p)
		if !p.FollowUp && !p.More {
			return c, now
		}
	}
}

// changed is a state with another policy of web, or other members of set a.
func changed(now *cluster, policy bool) *cluster {
	next := now.clone()
	if policy {
		web := endpointPolicy("web", policyOfRules(model.Ingress, allowFrom("b")), openEgress, "10.0.0.1")
		next.endpoints[web.ID] = web
	} else {
		next.sets["a"] = policytest.Prefixes("10.0.1.2/32")
	}
	return next
}

func TestOnlyTheEndpointsOfAPlanAreBehind(t *testing.T) {
	c, now := newBehind(t)
	wantBehind(t, c, "all is written", written)
	p := c.Update(changed(now, true).changes(now))
	wantBehind(t, c, "nothing is written", Remainder{Plan: p}, "web")
	wantBehind(t, c, "addresses have moved", Remainder{Plan: p, Moved: true}, "web")
	wantBehind(t, c, "endpoints are bound", Remainder{Plan: p, Moved: true, Bound: true})

	// 10.0.1.1 leaves set a and 10.0.1.2 joins it; their classes with regard to set b stay. One class goes with that.
	c, now = newBehind(t)
	p = c.Update(changed(now, false).changes(now))
	if len(p.Rejudge) == 0 {
		t.Fatal("no live flow is judged again: the test tests nothing")
	}
	wantBehind(t, c, "addresses have not moved", Remainder{Plan: p}, "web")
	wantBehind(t, c, "live flows are not judged again", Remainder{Plan: p, Moved: true, Bound: true}, "web")
	wantBehind(t, c, "all is written", written)
}

// An endpoint whose list of further sources changes, and nothing else, waits for the plan.
func TestAnEndpointThatGetsFurtherSourcesIsBehind(t *testing.T) {
	c, now := newBehind(t)
	next := now.clone()
	web := *next.endpoints[model.WorkloadID("ns", "web")]
	web.Sources = policytest.Prefixes("10.0.8.0/24")
	next.endpoints[web.ID] = &web
	p := c.Update(next.changes(now))
	if len(p.Bind) != 1 || len(p.Tables) != 0 {
		t.Fatalf("the plan binds %v and has tables %v: the test tests nothing", p.Bind, p.Tables)
	}
	wantBehind(t, c, "nothing is written", Remainder{Plan: p}, "web")
	wantBehind(t, c, "endpoints are bound", Remainder{Plan: p, Moved: true, Bound: true, Rejudged: true})
}

// Of each endpoint those pairs of classes are known that its rules tell apart, in either direction, and no others.
func TestRulesTellThoseClassesApartThatDifferInTheirSets(t *testing.T) {
	c, now := newBehind(t)
	next := now.clone()
	for name, policies := range map[string][2]*model.DirectionPolicy{
		"both": {policyOfRules(model.Ingress, allowFrom("a")), policyOfRules(model.Egress, model.MatchRule{Action: model.Allow, Destination: model.Side{In: []model.SetID{"b"}}})},
		"open": {{Direction: model.Ingress}, openEgress},
	} {
		e := endpointPolicy(name, policies[0], policies[1], map[string]string{"both": "10.0.0.21", "open": "10.0.0.22"}[name])
		next.endpoints[e.ID] = e
	}
	next.sets["a"] = policytest.Prefixes("10.0.1.1/32", "10.0.1.3/32")
	c.Update(next.changes(now))
	class := func(addr string) uint32 { return ClassOf(c, netip.MustParseAddr(addr)).ID }
	none, a, b, ab := class("10.0.7.7"), class("10.0.1.3"), class("10.0.1.2"), class("10.0.1.1")
	got := map[string]string{}
	for id, apart := range (ClassPairs{{a, a}, {none, a}, {b, none}, {a, ab}, {b, ab}}).Apart(c) {
		got[id.Name] = fmt.Sprint(apart)
	}
	want := map[string]string{"web": "[false true false false true]", "db": "[false false true true false]", "both": "[false true true true true]"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// A class that leaves the kernel with the plan still differs from others by its sets.
func TestClassesThatAPlanDropsAreKnownUntilTheNext(t *testing.T) {
	c, now := newBehind(t)
	next := now.clone()
	next.sets["a"] = nil
	p := c.Update(next.changes(now))
	if len(p.DropClasses) == 0 {
		t.Fatal("no class is dropped: the test tests nothing")
	}
	wantBehind(t, c, "addresses have not moved", Remainder{Plan: p}, "web")
}

func TestEndpointsThatWaitingChangesConcernAreBehind(t *testing.T) {
	for what, test := range map[string]struct {
		change func(*cluster)
		want   []string
	}{
		"another policy": {func(n *cluster) { *n = *changed(n, true) }, []string{"web"}},
		"other members":  {func(n *cluster) { *n = *changed(n, false) }, []string{"web"}},
		"a set that no rule refers to": {func(n *cluster) {
			n.sets["c"] = policytest.Prefixes("10.0.1.1/32")
		}, nil},
		"an equal policy": {func(n *cluster) {
			web := endpointPolicy("web", policyOfRules(model.Ingress, allowFrom("a")), openEgress, "10.0.0.1")
			n.endpoints[web.ID] = web
		}, nil},
		"a new endpoint": {func(n *cluster) {
			e := endpointPolicy("new", policyOfRules(model.Ingress, allowFrom("a")), openEgress, "10.0.0.12")
			n.endpoints[e.ID] = e
		}, []string{"new"}},
		"a staged policy": {func(n *cluster) {
			e := withStaged(n.endpoints[model.WorkloadID("ns", "db")], 1, 2)
			n.endpoints[e.ID] = e
		}, []string{"db", "db staged"}},
	} {
		c, now := newBehind(t)
		next := now.clone()
		test.change(next)
		r := written
		r.Waiting = []model.Changes{next.changes(now)}
		wantBehind(t, c, what, r, test.want...)
	}
}

// Whether an endpoint's own address is in a set decides which program it has, so the set is in none of its rules.
func TestAnEndpointWhoseOwnAddressIsToJoinASetIsBehind(t *testing.T) {
	c := New(Options{}, nil)
	to := model.MatchRule{Action: model.Allow, Destination: model.Side{In: []model.SetID{"own"}}}
	now := state(map[model.SetID][]netip.Prefix{"own": policytest.Prefixes("10.0.9.9/32")},
		endpointPolicy("web", policyOfRules(model.Ingress, to), openEgress, "10.0.0.1"),
		endpointPolicy("db", policyOfRules(model.Ingress, to), openEgress, "10.0.0.11"))
	c.Update(now.changes(nil))
	next := now.clone()
	next.sets["own"] = policytest.Prefixes("10.0.9.9/32", "10.0.0.1/32")
	r := written
	r.Waiting = []model.Changes{next.changes(now)}
	wantBehind(t, c, "its address joins", r, "web")
}

func TestAShadowIsBehindByItself(t *testing.T) {
	w := newTenants(t, Budget{})
	w.update(pod("shop", "a", 1, 2))
	e := withStaged(pod("shop", "a", 1, 2), 2, 3)
	carryOut(w.k, w.Update(model.Changes{InSync: true, Endpoints: map[model.EndpointID]*model.EndpointPolicy{e.ID: e}}))
	p := w.Update(model.Changes{InSync: true})
	if len(p.Bind) != 1 || !isShadow(p.Bind[0].Endpoint.ID) {
		t.Fatalf("the plan binds %v: the test tests nothing", p.Bind)
	}
	wantBehind(t, w.Compiler, "the plan of the staged policy", Remainder{Plan: p}, "a staged")
}

// An endpoint that is not behind is judged as the newest objects mean, however far a plan is written, and whatever waits.
func TestWhoIsNotBehindIsJudgedByTheNewestPolicy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{Confirm: true}
		pool, k, c := drawPool(t), newKernel(), New(o, nil)
		c.sets.atOnce = rapid.SampledFrom([]int{mostAtOnce, 0, 1}).Draw(t, "at once")
		now := newCluster()
		for i := range 6 {
			now.sets[model.SetID(fmt.Sprint("s", i))] = drawMembers(t)
		}
		var old *cluster
		for range rapid.IntRange(2, 5).Draw(t, "rounds") {
			now = now.clone()
			now.mutate(t, pool)
			plan := c.Update(now.changes(old))
			k.takeOver(now.ifaces())
			later := now.clone()
			var waiting []model.Changes
			if rapid.Bool().Draw(t, "more waits") {
				later.mutate(t, pool)
				waiting = []model.Changes{later.changes(now)}
			}
			checkBehind(t, c, k, plan, later, waiting)
			for plan.More || plan.FollowUp {
				plan = c.Update(model.Changes{InSync: true})
				carryOut(k, plan)
			}
			if old = now; rapid.IntRange(0, 3).Draw(t, "restart") == 0 {
				old = nil
				c.Close()
				c = New(o, k.snapshot(rapid.Bool().Draw(t, "stand-ins")))
			}
		}
	})
}

// checkBehind carries out a plan part by part, and before each asks who is behind what later means.
func checkBehind(t *rapid.T, c *Compiler, k *kernel, plan Plan, later *cluster, waiting []model.Changes) {
	held := map[model.EndpointID]bool{}
	maps.Copy(held, c.Waiting())
	for at := range c.Failed() {
		held[at.Endpoint] = true
	}
	writes, done := k.writes(plan), 0
	for _, part := range []struct {
		Remainder
		through string // the last of these writes is made before
	}{
		{Remainder{Plan: plan}, ""},
		{Remainder{Plan: plan, Moved: true}, "addr "},
		{Remainder{Plan: plan, Moved: true, Bound: true, Rejudged: true}, "bind "},
	} {
		for i, w := range writes {
			if part.through != "" && i >= done && strings.HasPrefix(w.what, part.through) {
				for ; done <= i; done++ {
					writes[done].do()
				}
			}
		}
		part.Waiting = waiting
		behind := part.Endpoints(c)
		for _, p := range drawProbes(t, k, history{policies: []*cluster{later}, sets: []*cluster{later}}, later) {
			if !p.was || p.final == nil || behind[p.id] || held[p.id] {
				continue
			}
			if d := cmp.Diff(*p.final, known(p.before, *p.final)); d != "" {
				t.Fatalf("through %q: %v %v is not said to be behind; packet %+v (-newest +kernel):\n%s", part.through, p.id, p.d, p.pkt, d)
			}
		}
	}
	for ; done < len(writes); done++ {
		writes[done].do()
	}
}
