package plan

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// While there is room for few classes, endpoints keep their last policy or are closed. No packet gets a verdict that no policy has, and in the
// end only what is reported differs from what it is to be.
func TestWithRoomForFewClassesEveryPacketHasAnOldOrANewVerdict(t *testing.T) {
	refused := 0
	rapid.Check(t, func(t *rapid.T) {
		room := rapid.IntRange(4, 24).Draw(t, "room")
		o := Options{Budget: Budget{Room: room}, Limits: table.Limits{
			Open: rapid.SampledFrom([]int{0, 1, 2, 3}).Draw(t, "open"),
			Make: rapid.SampledFrom([]int{0, 1, 100, 3000}).Draw(t, "make"),
		}, Confirm: rapid.Bool().Draw(t, "confirm")}
		pool, k, c := drawPool(t), newKernel(), New(o, nil)
		refusals := 0 // of plans whose tables the kernel may refuse yet
		if o.Confirm && rapid.Bool().Draw(t, "kernel refuses") {
			refusals = 12
		}
		c.crowd.assured = rapid.IntRange(0, 4).Draw(t, "assured")
		putInNamespaces(t, pool)
		now, old := newCluster(), (*cluster)(nil)
		for i := range 6 {
			now.sets[model.SetID(fmt.Sprint("s", i))] = drawMembers(t)
		}
		h := history{policies: []*cluster{now}, sets: []*cluster{now}}
		for range rapid.IntRange(1, 3).Draw(t, "rounds") {
			now = now.clone()
			now.mutate(t, pool)
			now.addAddrs(t)
			h.known, k.refuses = old, refusals > 0
			probes := drawProbes(t, k, h, now)
			plan := c.Update(now.changes(old))
			all := plan
			for plans := 0; plans == 0 || !plan.empty(); plans++ {
				if plans > 30000 {
					t.Fatalf("the plans have no end: %+v, %d classes, room %d, refused %d", plan, c.classes.Len(), room, len(c.crowd.refused))
				}
				if refusals > 0 && len(plan.Tables) > 0 {
					refusals--
					plan = withholdSome(t, c, plan)
				}
				runCrowded(t, k, plan, probes)
				again := false
				if k.refuses {
					again, _ = c.Retry()
				}
				plan = c.Update(model.Changes{InSync: true})
				plan.FollowUp = plan.FollowUp || again
				all.Bind, all.Rejudge = append(all.Bind, plan.Bind...), append(all.Rejudge, plan.Rejudge...)
			}
			for j := range probes {
				probes[j].was = probes[j].was && !k.refuses // flows were judged again by a plan of which a part was withheld
			}
			k.refuses = false // all that was refused has been tried again
			checkCrowded(t, c, k, all, probes)
			if len(c.Failed()) > 0 {
				refused++
			}
			old = now
			h.policies, h.sets = append(h.policies, now), append(h.sets, now)
			for _, s := range h.sets[:len(h.sets)-1] {
				h.sets = append(h.sets, h.after(s, now))
			}
		}
	})
	if refused == 0 {
		t.Error("no policy was refused")
	}
}

// withholdSome has a kernel refuse some tables of a plan.
func withholdSome(t *rapid.T, c *Compiler, plan Plan) Plan {
	failed := map[table.ID]error{}
	for _, of := range plan.Tables {
		if rapid.Bool().Draw(t, "refused") {
			failed[of.ID] = errRefused
		}
	}
	return c.Withhold(plan, failed)
}

// addAddrs gives an endpoint, at times, another address of a family that it has one of, which no other endpoint has.
func (c *cluster) addAddrs(t *rapid.T) {
	id, other := model.WorkloadID("ns", "pod0"), policytest.Addrs("10.0.0.12")[0]
	if c.endpoints[id] == nil || !rapid.Bool().Draw(t, "another address") {
		return
	}
	for _, e := range c.endpoints {
		if slices.Contains(e.Addrs, other) {
			return
		}
	}
	more := *c.endpoints[id]
	more.Addrs = append(slices.Clone(more.Addrs), other)
	c.endpoints[id] = &more
}

// putInNamespaces has policies belong to namespaces, mostly.
func putInNamespaces(t *rapid.T, pool []*model.DirectionPolicy) {
	for _, p := range pool {
		for _, tier := range p.Tiers {
			for _, policy := range tier.Policies {
				policy.Key.Namespace = rapid.SampledFrom([]string{"evil", "evil", "shop", ""}).Draw(t, "namespace")
			}
		}
	}
}

func runCrowded(t *rapid.T, k *kernel, plan Plan, probes []probe) {
	for i, w := range k.writes(plan) {
		w.do()
		for j := range probes {
			probes[j].unbound = true
			err := probes[j].check(k)
			if k.refuses {
				err = probes[j].opens(k)
			}
			if err != nil {
				t.Fatalf("after write %d (%s): %v", i, w.what, err)
			}
		}
	}
}

// opens checks that nothing is allowed that no policy allows.
func (p *probe) opens(k *kernel) error {
	v, bound, err := k.judge(p.id, p.d, p.pkt)
	if err == nil && bound && v.Allow && !slices.ContainsFunc(p.allowed, func(a model.Verdict) bool { return a.Allow }) {
		err = fmt.Errorf("%v %v packet %+v is allowed", p.id, p.d, p.pkt)
	}
	return err
}

// checkCrowded checks the state after all plans.
func checkCrowded(t *rapid.T, c *Compiler, k *kernel, all Plan, probes []probe) {
	failed := map[model.EndpointID]bool{}
	for at := range c.Failed() {
		failed[at.Endpoint] = true
	}
	for j := range probes {
		p := probes[j]
		if v, bound, err := k.judge(p.id, p.d, p.pkt); failed[p.id] && bound && err == nil { // it keeps its policy: flows are judged again
			truncated := policytest.Truncated(v)
			p.final = &truncated
		} else if failed[p.id] {
			continue
		}
		if err := p.checkFinal(k, all); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.garbage(); err != nil {
		t.Fatal(err)
	}
	if c.classes.Len() > c.crowd.room {
		return // of sets that belong to no namespace
	}
	for a, entry := range k.addrs {
		if int(entry.Class) >= c.crowd.room {
			t.Fatalf("%s is in class %d of %d", a, entry.Class, c.crowd.room)
		}
	}
}
