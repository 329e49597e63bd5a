package calc

import (
	"fmt"
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

func TestMapsThatWereLargeAreMadeAnew(t *testing.T) {
	g := New(thisNode)
	many := func(n int) (come, gone []model.Update) {
		for i := range n {
			u := pod(fmt.Sprintf("a/p%d", i), fmt.Sprintf("10.0.%d.%d fd00::%x", i/256, i%256, i+1), on("other"), label("pod", fmt.Sprint(i)))
			come, gone = append(come, u), append(gone, model.Absent(u))
		}
		return come, gone
	}
	come, gone := many(1000)
	g.Apply(append(come, pod("a/here", "10.1.0.1"), policyOf("all", "all()", fromSelector("!has(x)")), model.InSync{}))
	g.Flush()
	sizes := func() map[string]int {
		m := map[string]int{}
		for _, s := range g.sets.byID {
			if s.definition != nil {
				m["IPv4 members"], m["IPv6 members"] = s.members.most[0], s.members.most[1]
			}
		}
		return m
	}
	for what, most := range sizes() {
		if most < 1000 {
			t.Errorf("%s: %d, want what the test is about", what, most)
		}
	}
	g.Apply(gone)
	g.Flush()
	for what, most := range sizes() {
		if most > 10 {
			t.Errorf("%s: a map for %d", what, most)
		}
	}
	if g.endpoints.Len() != 1 || len(g.sets.byID) != 3 {
		t.Errorf("%d endpoints and %d sets are left, want 1 and 3", g.endpoints.Len(), len(g.sets.byID))
	}
}
