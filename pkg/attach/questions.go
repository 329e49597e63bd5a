package attach

import (
	"maps"
	"net/netip"
	"time"
)

// The kernel notifies of a change before the change is complete:
//
//   - A new IPv6 route is found by lookups after its notification (fib6_add_rt2node sets RTN_RTINFO behind inet6_rt_notify).
//   - A removed IPv4 route is found by lookups until after its notification (fib_table_delete).
//   - The routes of an interface that goes down are removed after the notification of the interface, and the removal of IPv4
//     routes has no notification of its own (dev_close_many, fib_table_flush).
//
// On an idle machine with two CPUs about one lookup in 3,000 is too early. So an address that a notification concerns is
// looked up at once and twice more. The first delay is longer than the kernel needs; the second is for a CPU that a hypervisor
// has stopped.
var askAgain = []time.Duration{30 * time.Millisecond, time.Second}

// questions are the addresses to look up again, by how often that has happened. The zero value has none. Not safe for
// concurrent use.
type questions struct {
	stages [][]question // by index of askAgain; each in order of time
}

type question struct {
	at    time.Time
	addrs map[netip.Addr]bool // shared, immutable
}

// add notes addresses that were looked up for the first time. The map must not change any more.
func (q *questions) add(now time.Time, addrs map[netip.Addr]bool) { q.put(0, now, addrs) }

func (q *questions) put(stage int, now time.Time, addrs map[netip.Addr]bool) {
	if stage == len(askAgain) || len(addrs) == 0 {
		return
	}
	for len(q.stages) <= stage {
		q.stages = append(q.stages, nil)
	}
	q.stages[stage] = append(q.stages[stage], question{now.Add(askAgain[stage]), addrs})
}

// next returns the time at which the next addresses are due; not ok: there are none.
func (q *questions) next() (at time.Time, ok bool) {
	for _, s := range q.stages {
		if len(s) > 0 && (!ok || s[0].at.Before(at)) {
			at, ok = s[0].at, true
		}
	}
	return at, ok
}

// due removes and returns the addresses that are due. Those to look up yet again are noted for their next time.
func (q *questions) due(now time.Time) map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	for i := len(q.stages) - 1; i >= 0; i-- { // what moves to the next stage is not due there
		moved := map[netip.Addr]bool{}
		for len(q.stages[i]) > 0 && !q.stages[i][0].at.After(now) {
			maps.Copy(moved, q.stages[i][0].addrs)
			q.stages[i] = q.stages[i][1:]
		}
		q.put(i+1, now, moved)
		maps.Copy(all, moved)
	}
	return all
}
