package plan

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

var errRefused = errors.New("refused")

// refusing carries out a plan on a kernel that refuses some of its tables, and checks after each write that nothing
// passes that no policy so far allows. kill: it ends after some write.
func refusing(t *rapid.T, c *Compiler, k *kernel, plan Plan, probes []probe, refuse, kill bool) {
	failed := map[table.ID]error{}
	for _, table := range plan.Tables {
		if refuse && rapid.Bool().Draw(t, "refused") {
			failed[table.ID] = errRefused
		}
	}
	if len(failed) > 0 {
		plan = c.Withhold(plan, failed)
	}
	for _, b := range slices.Concat(plan.Grow, plan.Bind) {
		if failed[b.Ingress] != nil || failed[b.Egress] != nil {
			t.Fatalf("%+v is to be bound, though one of its tables is refused: %v", b, failed)
		}
	}
	writes := k.writes(plan)
	stop := len(writes)
	if kill {
		stop = rapid.IntRange(0, stop).Draw(t, "killed after")
	}
	for i, w := range writes[:stop] {
		w.do()
		for _, p := range probes {
			v, bound, err := k.judge(p.id, p.d, p.pkt)
			allowed := slices.ContainsFunc(p.allowed, func(a model.Verdict) bool { return a.Allow })
			if err != nil || bound && v.Allow && !allowed {
				t.Fatalf("after write %d (%s): %v %v packet %+v: %+v, %v; refused %v\nall: %v", i, w.what, p.id, p.d, p.pkt, v, err, failed, texts(writes))
			}
		}
	}
}

// Whatever tables a kernel refuses, and when, also if agents start that do not find the sets of all classes: nothing passes that no policy so
// far allows, and once it takes them everything is as it should be.
func TestWhatAKernelRefusesOpensNothingAndComesAfterwards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pool, k, c := drawPool(t), newKernel(), New(Options{Confirm: true}, nil)
		c.sets.atOnce = rapid.SampledFrom([]int{mostAtOnce, 0, 1}).Draw(t, "at once")
		k.refuses = true
		var old *cluster
		now := newCluster()
		for i := range 6 {
			now.sets[model.SetID(fmt.Sprint("s", i))] = drawMembers(t)
		}
		h := history{policies: []*cluster{now}, sets: []*cluster{now}}
		var probes []probe
		update := func(ch model.Changes, refuse, kill bool) (again bool) {
			plan := c.Update(ch)
			h.known = old
			probes = drawProbes(t, k, h, now)
			refusing(t, c, k, plan, probes, refuse, kill)
			return plan.FollowUp || plan.More // of the sets of large policies a plan cleans up a part
		}
		killed := false
		for rounds := rapid.IntRange(2, 4).Draw(t, "rounds"); rounds > 0 || killed; rounds-- {
			if killed || rapid.IntRange(0, 3).Draw(t, "restart") == 0 {
				k.forgetClasses(func(uint32) bool { return rapid.Bool().Draw(t, "this class") })
				c.Close()
				c, old = New(Options{Confirm: true}, k.snapshot(false)), nil
			}
			now = now.clone()
			now.mutate(t, pool)
			if rapid.IntRange(0, 3).Draw(t, "retry") == 0 {
				c.Retry()
			}
			killed = rounds > 0 && rapid.IntRange(0, 3).Draw(t, "killed") == 0
			again := update(now.changes(old), true, killed)
			old = now
			h.policies, h.sets = append(h.policies, now), append(h.sets, now)
			for _, s := range h.sets[:len(h.sets)-1] {
				h.sets = append(h.sets, h.after(s, now))
			}
			if again && !killed {
				killed = rounds > 0 && rapid.IntRange(0, 3).Draw(t, "killed later") == 0
				update(model.Changes{InSync: true}, rapid.Bool().Draw(t, "refused again"), killed)
			}
		}
		c.Retry()
		for update(model.Changes{InSync: true}, false, false) {
		}
		k.refuses = false
		for _, p := range drawProbes(t, k, history{policies: []*cluster{now}, sets: []*cluster{now}}, now) {
			p.was = false
			if err := p.checkFinal(k, Plan{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := k.garbage(); err != nil {
			t.Fatal(err)
		}
		for at, err := range c.Failed() {
			if errors.Is(err, errRefused) {
				t.Fatalf("%v: %v", at, err)
			}
		}
	})
}

// A table in force that cannot be replaced by one with more rows denies what it has no row for, and judges the rest as
// before.
func TestATableThatCannotGrowDeniesWhatIsNewToIt(t *testing.T) {
	members := func(c ...string) map[model.SetID][]netip.Prefix {
		return map[model.SetID][]netip.Prefix{"a": policytest.Prefixes("10.0.0.2/32", "10.0.0.3/32"), "b": policytest.Prefixes(c...)}
	}
	web := endpointPolicy("web", policyOfRules(model.Ingress,
		model.MatchRule{Action: model.Deny, Source: model.Side{In: []model.SetID{"b"}, NotIn: []model.SetID{"a"}}}, allowFrom("b"), allowFrom("a")),
		openEgress, "10.0.0.1")
	c, k := New(Options{Confirm: true}, nil), newKernel()
	k.refuses = true
	first := state(members(), web)
	carryOut(k, c.Update(first.changes(nil)))
	want := func(when, src string, allowed bool) {
		t.Helper()
		v, _, err := k.judge(web.ID, model.Ingress, model.Packet{Src: netip.MustParseAddr(src), Dst: policytest.Own4, Protocol: 6, DstPort: 80})
		if err != nil || v.Allow != allowed {
			t.Errorf("%s: %s allowed: %v, want %v (%v)", when, src, v.Allow, allowed, err)
		}
	}
	second := state(members("10.0.0.3/32"), web)
	plan := c.Update(second.changes(first))
	if len(plan.Grow) != 1 || len(plan.Tables) != 1 {
		t.Fatalf("nothing grows: the test tests nothing: %+v", plan)
	}
	carryOut(k, c.Withhold(plan, map[table.ID]error{plan.Tables[0].ID: errRefused}))
	want("refused", "10.0.0.2", true)
	want("refused", "10.0.0.3", false)
	if err := c.Failed()[EndpointDirection{web.ID, model.Ingress}]; !errors.Is(err, errRefused) {
		t.Errorf("error %v", err)
	}
	// The number of a class that went must not lead to its row.
	third := state(members("10.0.0.2/32"), web)
	carryOut(k, c.Update(third.changes(second)))
	carryOut(k, c.Update(model.Changes{InSync: true}))
	want("other members", "10.0.0.2", false)
	want("other members", "10.0.0.3", true)
	none := state(map[model.SetID][]netip.Prefix{}, web)
	carryOut(k, c.Update(none.changes(third)))
	carryOut(k, c.Update(model.Changes{InSync: true}))
	denied := state(map[model.SetID][]netip.Prefix{"b": policytest.Prefixes("10.0.0.2/32")}, web)
	carryOut(k, c.Update(denied.changes(none)))
	want("a class with the number of one that was allowed", "10.0.0.2", false)
	carryOut(k, c.Update(third.changes(denied)))
	carryOut(k, c.Update(model.Changes{InSync: true}))
	if again, _ := c.Retry(); !again {
		t.Error("nothing is to be tried again")
	}
	carryOut(k, c.Update(model.Changes{InSync: true}))
	want("afterwards", "10.0.0.2", true)
	want("afterwards", "10.0.0.3", true)
	if len(c.Failed()) != 0 {
		t.Errorf("failed: %v", c.Failed())
	}
}

// A table of an earlier agent that cannot be replaced by one with more rows has its rows under numbers of its own: classes that are new to it are
// denied.
func TestAnEarlierAgentsTableThatCannotGrowDeniesWhatIsNewToIt(t *testing.T) {
	members := map[model.SetID][]netip.Prefix{"a": policytest.Prefixes("10.0.0.2/32"), "b": nil}
	web := endpointPolicy("web", policyOfRules(model.Ingress, allowFrom("a")), openEgress, "10.0.0.1")
	other := endpointPolicy("other", policyOfRules(model.Ingress, allowFrom("b")), openEgress, "10.0.0.8")
	k := newKernel()
	carryOut(k, New(Options{}, nil).Update(state(members, web, other).changes(nil)))
	k.refuses = true
	c := New(Options{Confirm: true}, k.snapshot(false))
	members["b"] = policytest.Prefixes("10.0.0.9/32")
	plan := c.Update(state(members, web, other).changes(nil))
	failed := map[table.ID]error{}
	for _, table := range plan.Tables {
		failed[table.ID] = errRefused
	}
	if len(plan.Grow) == 0 {
		t.Fatalf("nothing grows: the test tests nothing: %+v", plan)
	}
	carryOut(k, c.Withhold(plan, failed))
	want := func(when string, id model.EndpointID, src string, allowed bool) {
		t.Helper()
		v, _, err := k.judge(id, model.Ingress, model.Packet{Src: netip.MustParseAddr(src), Dst: k.bound[id].Endpoint.Addrs[0], Protocol: 6, DstPort: 80})
		if err != nil || v.Allow != allowed {
			t.Errorf("%s: %s to %v allowed: %v, want %v (%v)", when, src, id, v.Allow, allowed, err)
		}
	}
	want("refused", web.ID, "10.0.0.2", true)
	want("refused", web.ID, "10.0.0.9", false)
	want("refused", other.ID, "10.0.0.9", false)
	c.Retry()
	carryOut(k, c.Update(model.Changes{InSync: true}))
	want("afterwards", web.ID, "10.0.0.2", true)
	want("afterwards", web.ID, "10.0.0.9", false)
	want("afterwards", other.ID, "10.0.0.9", true)
}

// A table has reached a limit, and lacks rows, when an agent starts that cannot make it again either. It is reported, and a class that gets the number
// of one that had a row has none.
func TestATableThatLacksRowsIsReportedAfterARestart(t *testing.T) {
	members := map[model.SetID][]netip.Prefix{"a": policytest.Prefixes("10.0.0.2/32", "10.0.0.4/32", "10.0.0.7/32"), "b": policytest.Prefixes("10.0.0.3/32"),
		"c": policytest.Prefixes("10.0.0.7/32")}
	port := func(set model.SetID, port uint16) model.MatchRule {
		rule, tcp := allowFrom(set), model.ProtoTCP
		rule.Protocol, rule.Destination.Ports = &tcp, &model.PortMatch{Ranges: []model.PortRange{{Lo: port, Hi: port}}}
		return rule
	}
	web := endpointPolicy("web", policyOfRules(model.Ingress, port("a", 80), port("b", 443)), openEgress, "10.0.0.1")
	other := endpointPolicy("other", policyOfRules(model.Ingress, port("c", 80)), openEgress, "10.0.0.8")
	limits, k := table.Limits{Rows: 4, Walk: 1}, newKernel()
	k.refuses = true
	first := New(Options{Limits: limits}, nil)
	before := state(members, web, other)
	carryOut(k, first.Update(before.changes(nil)))
	members = maps.Clone(members)
	members["a"], members["b"], members["c"] = policytest.Prefixes("10.0.0.2/32", "10.0.0.4/32"), policytest.Prefixes("10.0.0.2/32", "10.0.0.3/32"), nil
	now := state(members, web, other)
	carryOut(k, first.Update(now.changes(before)))
	want := func(when, src string, port uint16, allowed bool) {
		t.Helper()
		v, _, err := k.judge(web.ID, model.Ingress, model.Packet{Src: netip.MustParseAddr(src), Dst: web.Addrs[0], Protocol: 6, DstPort: port})
		if err != nil || v.Allow != allowed {
			t.Errorf("%s: %s to port %d allowed: %v, want %v (%v)", when, src, port, v.Allow, allowed, err)
		}
	}
	want("limited", "10.0.0.3", 443, true)
	want("limited", "10.0.0.2", 443, false)

	second := New(Options{Confirm: true, Limits: limits}, k.snapshot(false))
	members = maps.Clone(members)
	members["c"] = policytest.Prefixes("10.0.0.9/32")
	carryOut(k, second.Update(state(members, web, other).changes(nil)))
	want("after a restart", "10.0.0.3", 443, true)
	want("after a restart", "10.0.0.2", 443, false)
	want("after a restart", "10.0.0.9", 80, false)
	if second.Failed()[EndpointDirection{web.ID, model.Ingress}] == nil {
		t.Errorf("failed: %v, want that the table is short", second.Failed())
	}
}
