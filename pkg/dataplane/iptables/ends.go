package iptables

import (
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/shares"
)

// flowTable limits the connections of endpoints in the kernel's table.
type flowTable struct {
	limiter *shares.Limiter // nil: no connections are limited
	ends    ends
}

// limit makes the limiter of a table. It calls notify when its findings have changed.
func (t *flowTable) limit(table shares.Table, notify func(), log *slog.Logger) *shares.Limiter {
	t.limiter = shares.New(table, t.ends.published.Load, notify, log)
	return t.limiter
}

// ends has the ends of connections for the limiter, which runs beside the loop. The loop publishes them.
type ends struct {
	published atomic.Pointer[shares.Ends]
	of        *endpoints // those that were published
	changes   [2]uint64  // of the endpoints and of their further sources, as of then
	node      []netip.Addr
}

// publish publishes endpoints in force and the node's addresses, if either has changed. marks are those of connections.
func (x *ends) publish(e *endpoints, marks chains.Marks, node []netip.Addr, routes shares.Routes) {
	changes := e.version()
	if x.of == e && x.changes == changes && slices.Equal(x.node, node) {
		return
	}
	x.of, x.changes, x.node = e, changes, slices.Clone(node)
	x.published.Store(shares.NewEnds(shares.Known{Endpoints: e.ends(), Node: x.node, Routes: routes, Read: readMark(marks)}))
}

// readMark returns what reads the marks of connections.
func readMark(marks chains.Marks) func(uint32) shares.Mark {
	return func(mark uint32) shares.Mark {
		g, turned, _ := marks.GenerationOf(mark)
		return shares.Mark{Judged: g != neverJudged, Turned: turned, Alone: marks.IsLone(mark)}
	}
}
