package table

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

// In parts of any size the same table is made as at once, and how much is done in one part is bounded.
func TestATableMadeInPartsIsTheSame(t *testing.T) {
	wide, ofWide := wideRules(t, 4000, nil)
	dense, ofDense := wideRules(t, 300, nil)
	sized, ofSized := sized(t, 1000)
	for name, c := range map[string]struct {
		prog  *match.Program
		known []classes.Class
		lim   Limits
		parts int
	}{
		"wide":        {wide, ofWide, Limits{}, 50},
		"dense":       {dense, ofDense, Limits{}, 50},
		"few rows":    {sized, ofSized, Limits{}, 10},
		"interpreted": {dense, ofDense, Limits{Interpret: true}, 0},
		"refused":     {wide, ofWide, Limits{Steps: 1000}, 10},
	} {
		m, parts, over := Begin(c.prog, classes.ListOf(c.known), c.lim), 0, 0
		for !m.GoOn(2000, nil) {
			parts, over = parts+1, max(over, -m.breaks.left)
		}
		t.Logf("%s: %d parts, the longest %d over", name, parts, over)
		if parts < c.parts || over > 200_000 {
			t.Errorf("%s: %d parts, the longest %d over", name, parts, over)
		}
		if want := Build(c.prog, classes.ListOf(c.known), c.lim); !reflect.DeepEqual(m.Table(), want) {
			t.Errorf("%s: another table than at once", name)
		}
	}
}

// Classes that come while a table is made, and those that take the number of another, have their rows in it.
func TestATableKnowsClassesThatCameWhileItWasMade(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := policytest.NewNumbers()
		prog, err := match.Expand(mixedPolicy(90, rng), policytest.ExpandWorld, n)
		if err != nil {
			t.Fatal(err)
		}
		classOf := func(id uint32) classes.Class {
			c := classes.Class{ID: id, Family: 4 + 2*uint8(rng.IntN(2))}
			for set := range uint32(len(n.Sets)) {
				if rng.IntN(3) == 0 {
					c.Sets = append(c.Sets, set+1)
				}
			}
			return c
		}
		known := map[uint32]classes.Class{}
		var first []classes.Class
		for id := range uint32(20) {
			c := classOf(id + 2)
			first, known[c.ID] = append(first, c), c
		}
		m := Begin(prog, classes.ListOf(first), Limits{Wide: seed%2 == 1})
		for !m.GoOn(500, func() []classes.Class {
			if len(known) >= 200 {
				return nil
			}
			c, again := classOf(uint32(len(known)+2)), classOf(2+rng.Uint32N(20))
			known[c.ID], known[again.ID] = c, again
			return []classes.Class{c, again}
		}()) {
		}
		if len(known) < 40 {
			t.Fatalf("seed %d: only %d classes have come", seed, len(known))
		}
		for _, c := range known {
			for range 50 {
				pkt := model.Packet{Src: policytest.Own4, Dst: policytest.Own4, Protocol: []uint8{6, 17, 132, 47, 1, 58, 4}[rng.IntN(7)]}
				if c.Family == 6 {
					pkt.Src, pkt.Dst = policytest.Own6, policytest.Own6
				}
				if model.HasPorts(pkt.Protocol) {
					pkt.SrcPort, pkt.DstPort = uint16(rng.IntN(8)), uint16(rng.IntN(115))
				}
				if want, got := prog.Interpret(c, pkt), m.Table().Eval(c.ID, pkt); got != want {
					t.Fatalf("seed %d: %+v of class %+v: table says %+v, interpreter %+v", seed, pkt, c, got, want)
				}
			}
		}
	}
}

// What is given up ends, at whatever point, and does not go on.
func TestATableThatIsGivenUpEnds(t *testing.T) {
	prog, known := wideRules(t, 1000, nil)
	for parts := range 40 {
		m := Begin(prog, classes.ListOf(known), Limits{Wide: parts%2 == 0})
		for range parts {
			m.GoOn(3000, nil)
		}
		done := m.done
		m.Stop()
		m.Stop()
		if m.done != done {
			t.Errorf("after %d parts: done %v, and once it was stopped %v", parts, done, m.done)
		}
	}
}

// BenchmarkMaking makes tables in parts of 80,000 units, beside twice as many classes of others.
func BenchmarkMaking(b *testing.B) {
	for _, n := range []int{1000, 8000, 60000} {
		b.Run(fmt.Sprint(n, " rules"), func(b *testing.B) {
			prog, known := wideRules(b, n, nil)
			for i := range uint32(2 * n) {
				known = append(known, classes.Class{ID: uint32(n) + 2 + i, Family: 4, Sets: []uint32{uint32(n) + 100 + i}})
			}
			all := classes.ListOf(known)
			parts, longest := 0, time.Hour // the least of all rounds, for this machine may do something else
			b.ResetTimer()
			for b.Loop() {
				m := Begin(prog, all, Limits{})
				most := time.Duration(0)
				for done := false; !done; parts++ {
					started := time.Now()
					done = m.GoOn(80_000, nil)
					most = max(most, time.Since(started))
				}
				longest = min(longest, most)
			}
			b.ReportMetric(float64(parts)/float64(b.N), "parts")
			b.ReportMetric(float64(longest.Microseconds())/1000, "ms-longest")
		})
	}
}
