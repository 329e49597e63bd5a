package tcpreset

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/conntrack"
)

const (
	mostWanted = 1024 // packets that wait for a reading of the table
	// readPart is the part of the time in which the table is not read, for each part in which it is.
	readPart = 50
)

// table is the kernel's table of connections; conntrack.Conn is one.
type table interface {
	Dump(conntrack.Family, conntrack.Filter, func(conntrack.Entry)) error
}

// finder resets the receivers of packets of masqueraded connections, by the ends that the kernel's table has for them.
type finder struct {
	table  table
	reset  func(segment) error
	wanted chan segment
}

// want asks for a reset; false: too many packets wait.
func (f *finder) want(s segment) bool {
	select {
	case f.wanted <- s:
		return true
	default:
		return false
	}
}

// run finds what is wanted until the context ends. done gets the result for each packet.
func (f *finder) run(ctx context.Context, done func(error)) {
	for {
		var batch []segment
		select {
		case <-ctx.Done():
			return
		case s := <-f.wanted:
			batch = append(batch, s)
		}
		for len(f.wanted) > 0 {
			batch = append(batch, <-f.wanted)
		}
		began := time.Now()
		for _, err := range f.find(batch) {
			done(err)
		}
		timer := time.NewTimer(readPart * time.Since(began))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

var errNoConnection = errors.New("the kernel has no connection with the packet's ends")

// find resets the receivers of packets. The result is parallel to them.
func (f *finder) find(batch []segment) []error {
	wanted := map[direction]int{}
	errs := make([]error, len(batch))
	families := map[conntrack.Family]bool{}
	for i, s := range batch {
		wanted[s.direction()], errs[i] = i, errNoConnection
		families[familyOf(s.dst)] = true
	}
	for family := range families {
		err := f.table.Dump(family, conntrack.Filter{}, func(e conntrack.Entry) {
			if e.Original.Protocol != unix.IPPROTO_TCP {
				return
			}
			opener, answerer := netip.AddrPortFrom(e.Original.Src, e.Original.SrcPort), netip.AddrPortFrom(e.Reply.Src, e.Reply.SrcPort)
			if i, ok := wanted[direction{opener, answerer}]; ok {
				errs[i] = f.reset(batch[i].between(netip.AddrPortFrom(e.Reply.Dst, e.Reply.DstPort), answerer))
			}
			if i, ok := wanted[direction{answerer, opener}]; ok {
				errs[i] = f.reset(batch[i].between(netip.AddrPortFrom(e.Original.Dst, e.Original.DstPort), opener))
			}
		})
		for i := range batch {
			if err != nil && familyOf(batch[i].dst) == family && errors.Is(errs[i], errNoConnection) {
				errs[i] = err
			}
		}
	}
	return errs
}

func familyOf(a netip.Addr) conntrack.Family {
	if a.Is4() {
		return conntrack.IPv4
	}
	return conntrack.IPv6
}
