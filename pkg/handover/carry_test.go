package handover

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/dataplane"
)

// faulty is a table that refuses writes.
type faulty struct {
	*table
	insert, mark error
}

func (k faulty) Insert(flows []conntrack.Flow) []error {
	if k.insert == nil {
		return k.table.Insert(flows)
	}
	return slices.Repeat([]error{k.insert}, len(flows))
}

func (k faulty) SetMarks(list []conntrack.Entry, mark func(conntrack.Entry) uint32, mask uint32) []error {
	return slices.Repeat([]error{k.mark}, len(list))
}

// A connection that packets have made or ended meanwhile is no error; anything else is, since the dataplane that is given up knows more.
func TestRefusedWritesOfConnectionsAreErrors(t *testing.T) {
	short := errors.New("no memory")
	known, unknown := tcp(podA, 1000, podB, 80), tcp(podA, 2000, podB, 80)
	e := bpf.CtEntry{State: replied | open, Egress: 3, Ingress: 3, OpenerIf: 4, ResponderIf: 5}
	for _, c := range []struct{ insert, mark, want error }{
		{nil, nil, nil}, {conntrack.ErrExists, nil, nil}, {nil, conntrack.ErrNoEntry, nil}, {short, nil, short}, {nil, short, short},
	} {
		k := faulty{newTable(1000, established(known)), c.insert, c.mark}
		if _, err := ToKernel(all(flow(known, e), flow(unknown, e)), k, dataplane.Defaults().Timeouts, Marks{Value: 1, Mask: 3, Owner: owner}); !errors.Is(err, c.want) {
			t.Errorf("inserting: %v, marking: %v; got %v, want %v", c.insert, c.mark, err, c.want)
		}
	}
}

// Of an endpoint's half-open flows those with the latest packets are kept, in bounded memory, in whatever order they are read.
func TestTheLatestHalfOpenFlowsAreKept(t *testing.T) {
	const many = 5 * int(bpf.HalfShare)
	l := latest{of: map[uint32][]aged{}}
	for i := range many {
		age := time.Duration(i*7919%many) * time.Second
		l.note(flow(tcp(podA, uint16(i), outside, 80), bpf.CtEntry{OpenerIf: 4}), age)
		if n := len(l.of[4]); n >= 2*int(bpf.HalfShare) {
			t.Fatalf("%d flows are kept", n)
		}
	}
	kept := cut(l.of[4])
	if last := kept[len(kept)-1].age; len(kept) != int(bpf.HalfShare) || last != time.Duration(bpf.HalfShare-1)*time.Second {
		t.Errorf("%d flows are kept, the oldest of %v", len(kept), last)
	}
}
