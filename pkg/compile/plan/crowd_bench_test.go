package plan

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/model"
)

// What the limit of classes costs each plan by which an address comes to be in another combination, while there are many: 7,000, each of which is
// in 150 sets or so, which 100 namespaces have selected.
func BenchmarkLimitOfClasses(b *testing.B) {
	c := New(Options{Budget: Budget{Assured: Cost{Classes: 63}}}, nil)
	ch := model.Changes{InSync: true, Sets: map[model.SetID]*model.SetChange{}, Endpoints: map[model.EndpointID]*model.EndpointPolicy{}}
	for n := range 200 {
		var ids []model.SetID
		for i := range 10 {
			id := model.SetID(fmt.Sprint("s", n*10+i))
			ids, ch.Sets[id] = append(ids, id), &model.SetChange{}
			for a := range 7000 {
				if a%2000 == n*10+i || n < 30 && a*2654435761>>8>>((n*10+i)%13)&1 != 0 {
					ch.Sets[id].Added = append(ch.Sets[id].Added, host(netip.AddrFrom4([4]byte{9, 1, byte(a >> 8), byte(a)})))
				}
			}
		}
		e := selecting(fmt.Sprint("n", n/2), fmt.Sprint(n), ids...)
		ch.Endpoints[e.ID] = e
	}
	c.Update(ch)
	c.crowd.room = c.classes.Len()*16/15 + 32
	for num := range uint32(7) { // a class that there was none of
		c.classes.Add(host(netip.AddrFrom4([4]byte{9, 2, 0, 1})), num*37+1)
	}
	b.Run("of policies in force", func(b *testing.B) {
		for range b.N {
			(&planner{c: c}).limitClasses()
		}
	})
	if all := c.classes.Crowd(c.crowd.most()); len(all) < 7000 || len(c.crowd.refused) > 0 {
		b.Fatalf("%d classes, %d refused", len(all), len(c.crowd.refused))
	}
	b.Run("count of what is left", func(b *testing.B) {
		all := c.classes.Crowd(c.crowd.most())
		a := authorsOf(c.programs.all(), c.endpoints.judging(), c.crowd.known)
		b.ResetTimer()
		for range b.N {
			classes.Shares(all, a.of, len(a.list))
		}
	})
}
