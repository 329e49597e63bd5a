package compile

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/model"
)

var errRefused = errors.New("refused")

// refusing carries out a plan on a kernel that refuses some of its tables, and checks after each write that nothing
// passes that no policy so far allows.
func refusing(t *rapid.T, c *Compiler, k *kernel, plan Plan, probes []probe, refuse bool) {
	failed := map[TableID]error{}
	for _, table := range plan.Tables {
		if refuse && rapid.Bool().Draw(t, "refused") {
			failed[table.ID] = errRefused
		}
	}
	if len(failed) > 0 {
		plan = c.Withhold(plan, failed)
	}
	writes := k.writes(plan)
	for i, w := range writes {
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

// Whatever tables a kernel refuses, and when: nothing passes that no policy so far allows, and
// once it takes them everything is as it should be.
func TestWhatAKernelRefusesOpensNothingAndComesAfterwards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pool, k, c := drawPool(t), newKernel(), New(Options{Confirm: true}, nil)
		k.refuses = true
		var old *cluster
		now := newCluster()
		for i := range 6 {
			now.sets[model.SetID(fmt.Sprint("s", i))] = drawMembers(t)
		}
		h := history{policies: []*cluster{now}, sets: []*cluster{now}}
		var probes []probe
		update := func(ch model.Changes, refuse bool) (again bool) {
			plan := c.Update(ch)
			probes = drawProbes(t, k, h, now)
			refusing(t, c, k, plan, probes, refuse)
			return plan.Unsettled
		}
		for range rapid.IntRange(2, 4).Draw(t, "rounds") {
			now = now.clone()
			now.mutate(t, pool)
			if rapid.IntRange(0, 3).Draw(t, "retry") == 0 {
				c.Retry()
			}
			again := update(now.changes(old), true)
			old = now
			h.policies, h.sets = append(h.policies, now), append(h.sets, now)
			for _, s := range h.sets[:len(h.sets)-1] {
				h.sets = append(h.sets, after(s, now))
			}
			if again {
				update(model.Changes{InSync: true}, rapid.Bool().Draw(t, "refused again"))
			}
		}
		for c.Retry() || update(model.Changes{InSync: true}, false) {
			update(model.Changes{InSync: true}, false)
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
