package handover

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/conntrack"
)

// ToBPF adds the connections of the kernel's table to BPF maps, and returns the number of flows added. It reads the table twice: for
// half-open flows an endpoint has little room in the maps, so only the latest are added, and their age follows from the timeouts of
// all entries.
func ToBPF(k Kernel, to *bpfmaps.Flows, f Flows, room bpfmaps.Room) (added int, err error) {
	adder, err := to.NewAdder(room)
	if err != nil {
		return 0, err
	}
	l := latest{timeouts: map[class]time.Duration{}, of: map[uint32][]aged{}}
	failed := func(err error) (int, error) {
		return added, fmt.Errorf("carry connections over to BPF maps: %w", err)
	}
	for _, family := range families {
		if err := k.Dump(family, conntrack.Filter{}, l.measure); err != nil {
			return failed(err)
		}
	}
	var failure error
	for _, family := range families {
		err := k.Dump(family, conntrack.Filter{}, func(e conntrack.Entry) {
			for _, flow := range f.Of(e) {
				if flow.Entry.State&open == 0 {
					l.note(flow, l.age(e))
					continue
				}
				n, err := adder.Add([]bpfmaps.Flow{flow})
				added, failure = added+n, errors.Join(failure, err)
			}
		})
		if err := errors.Join(err, failure); err != nil {
			return failed(err)
		}
	}
	for _, list := range l.of {
		for _, a := range cut(list) {
			n, err := adder.Add([]bpfmaps.Flow{a.flow})
			if added += n; err != nil {
				return failed(err)
			}
		}
	}
	return added, nil
}

// class is a kind of entries that have the same timeout when a packet comes.
type class struct {
	protocol, state uint8
	status          conntrack.Status
}

func classOf(e conntrack.Entry) class {
	return class{e.Original.Protocol, e.TCPState, e.Status & (conntrack.SeenReply | conntrack.Assured)}
}

// aged is a flow with the time since its last packet.
type aged struct {
	flow bpfmaps.Flow
	age  time.Duration
}

// latest keeps the half-open flows of each interface with the latest packets.
type latest struct {
	timeouts map[class]time.Duration // the longest remaining timeout of an entry
	of       map[uint32][]aged       // by interface
}

func (l *latest) measure(e conntrack.Entry) {
	l.timeouts[classOf(e)] = max(l.timeouts[classOf(e)], e.Timeout)
}

func (l *latest) age(e conntrack.Entry) time.Duration { return l.timeouts[classOf(e)] - e.Timeout }

func (l *latest) note(f bpfmaps.Flow, age time.Duration) {
	ifindex := cmp.Or(f.Entry.OpenerIf, f.Entry.ResponderIf)
	list := append(l.of[ifindex], aged{f, age})
	if len(list) >= 2*int(bpf.HalfShare) {
		list = cut(list)
	}
	l.of[ifindex] = list
}

// cut returns the youngest flows, as many as an endpoint has room for.
func cut(list []aged) []aged {
	slices.SortFunc(list, func(a, b aged) int { return cmp.Compare(a.age, b.age) })
	return list[:min(len(list), int(bpf.HalfShare))]
}
