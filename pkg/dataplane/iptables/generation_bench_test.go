package iptables

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/model"
)

// BenchmarkGenerationsBeginAgain measures changes that use the last generation and the first ones, beside 200,000 connections with marks of
// the last ones. Its log has how long each took.
func BenchmarkGenerationsBeginAgain(b *testing.B) {
	const connections, changes = 200_000, 9
	n := newRealNode(b, iptables.Legacy)
	n.start()
	n.apply(-1)
	table, ok := n.kernel.Flows.(*conntrack.Conn)
	if !ok {
		b.Fatal("the node has no table of connections")
	}
	stamp, err := n.agent.state.static.base.Marks.Generation(n.agent.state.static.generation.most - 2)
	if err != nil {
		b.Fatal(err)
	}
	var flows []conntrack.Flow
	for i := range uint32(connections) {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], 0x64400000+i)
		flows = append(flows, conntrack.Flow{Timeout: time.Hour, Mark: stamp.Value, Original: conntrack.Tuple{
			Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.AddrFrom4(a), Protocol: model.ProtoTCP, SrcPort: 1, DstPort: 1}})
	}
	for range b.N {
		b.StopTimer()
		table.Insert(flows)
		_, err := table.Remark(conntrack.IPv4, conntrack.Filter{}, stamp.Mask, func(conntrack.Entry) (uint32, bool) { return stamp.Value, true })
		if err != nil {
			b.Fatal(err)
		}
		g := &n.agent.state.static.generation
		g.wait()
		g.number, g.former = g.most-1, false
		b.StartTimer()
		var took []time.Duration
		for range changes {
			began := time.Now()
			n.next()
			n.apply(-1)
			took = append(took, time.Since(began))
		}
		b.Log(took)
	}
}
