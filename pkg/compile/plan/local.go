package plan

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// ErrOwnAddresses says that an endpoint has several addresses of one family, and that its policy means something else
// for one than for another. It has one table for all of them, so that cannot be enforced.
var ErrOwnAddresses = errors.New("its own addresses are judged differently")

// localAddrs answers questions about an endpoint's own addresses, and notes the questions.
type localAddrs struct {
	known *setNumbers
	addrs [2]netip.Addr // IPv4, IPv6; invalid: none
	sets  [2][]uint32   // the numbers of the sets they are in
	more  []netip.Addr  // the endpoint's other addresses
	asked map[question]bool
}

// question is whether the endpoint's own address of a family is in a set.
type question struct {
	family uint8
	set    model.SetID
}

// localOf returns the answers for the first address of each family of an endpoint; nil has none.
func (s *setNumbers) localOf(e *model.EndpointPolicy) *localAddrs {
	l := &localAddrs{known: s}
	if e == nil {
		return l
	}
	for _, a := range e.Addrs {
		if !a.IsValid() {
			continue
		}
		if t := indexOf(a); !l.addrs[t].IsValid() {
			l.set(a)
		} else {
			l.more = append(l.more, a)
		}
	}
	return l
}

func (l *localAddrs) set(a netip.Addr) {
	t := indexOf(a)
	l.addrs[t], l.sets[t] = a, l.known.of(a)
}

// indexOf returns an address's index in arrays by family; index does so for the number of a family.
func indexOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

func index(family uint8) int {
	if family == 4 {
		return 0
	}
	return 1
}

// Addr implements Local.
func (l *localAddrs) Addr(family uint8) (netip.Addr, bool) {
	a := l.addrs[index(family)]
	return a, a.IsValid()
}

// In implements Local.
func (l *localAddrs) In(family uint8, set model.SetID) bool {
	in := l.in(question{family, set})
	l.asked[question{family, set}] = in
	return in
}

func (l *localAddrs) in(q question) bool {
	num, ok := l.known.Find(q.set)
	if !ok {
		return false
	}
	_, in := slices.BinarySearch(l.sets[index(q.family)], num)
	return in
}

func (l *localAddrs) inside(p netip.Prefix) bool {
	a := l.addrs[indexOf(p.Addr())]
	return a.IsValid() && p.Contains(a)
}
