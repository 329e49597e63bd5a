package agent

import (
	"net/netip"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/model"
)

// routes are the node's routes to its workload interfaces, on their way to the graph. Owned by the loop.
type routes struct {
	next    <-chan map[netip.Addr]string // nil: there is none to come
	awaited bool                         // nothing is known yet
}

// apply gives a state of the routes to the graph; not ok: there will be no further one. It reports whether there was one.
func (r *routes) apply(list map[netip.Addr]string, ok bool, g *calc.Graph) bool {
	if !ok {
		r.next = nil
		return false
	}
	if list == nil {
		list = map[netip.Addr]string{}
	}
	r.awaited = false
	g.Apply([]model.Update{model.RoutesUpdate{Routes: list}})
	return true
}
