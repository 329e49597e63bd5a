package iptables

import (
	"log/slog"
	"net/netip"

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
	t.limiter = shares.New(table, t.ends.Ends, notify, log)
	return t.limiter
}

// ends publishes endpoints for the limiter.
type ends struct {
	shares.Publisher
	of      *endpoints // those that were published
	version [2]uint64  // of them
}

// publish publishes endpoints in force and the node's addresses, if either has changed. marks are those of connections.
func (x *ends) publish(e *endpoints, marks chains.Marks, node []netip.Addr, routes shares.Routes) {
	version := e.version()
	if x.of == e && x.version == version && x.IsNode(node) {
		return
	}
	x.of, x.version = e, version
	x.Publish(shares.Known{Endpoints: e.ends(), Node: node, Routes: routes, Read: readMark(marks)})
}

// readMark returns what reads the marks of connections.
func readMark(marks chains.Marks) func(uint32) shares.Mark {
	return func(mark uint32) shares.Mark {
		g, turned, _ := marks.GenerationOf(mark)
		return shares.Mark{Judged: g != chains.NeverJudged, Turned: turned, Alone: marks.IsLone(mark)}
	}
}
