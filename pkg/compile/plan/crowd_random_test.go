package plan

import (
	"fmt"
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
			h.known = old
			probes := drawProbes(t, k, h, now)
			plan := c.Update(now.changes(old))
			all := plan
			for plans := 0; plans == 0 || !plan.empty(); plans++ {
				if plans > 30000 {
					t.Fatalf("the plans have no end: %+v, %d classes, room %d, refused %d", plan, c.classes.Len(), room, len(c.crowd.refused))
				}
				runCrowded(t, k, plan, probes)
				plan = c.Update(model.Changes{InSync: true})
				all.Bind, all.Rejudge = append(all.Bind, plan.Bind...), append(all.Rejudge, plan.Rejudge...)
			}
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
			if err := probes[j].check(k); err != nil {
				t.Fatalf("after write %d (%s): %v", i, w.what, err)
			}
		}
	}
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
