package iptables

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"time"

	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/ipsets"
)

// removalPatience is how long an Apply waits for a reading of the table of connections, if the last one has not taken longer. It is enough where
// a few thousand connections are tracked, with the wait for packets.
const removalPatience = 30 * time.Millisecond

// heirs removes the connections of addresses that endpoints lose or get from the kernel's table. The table knows addresses, not pods, and an
// entry is judged in the direction in which it was opened: an endpoint would be reached by answers to what the former owner of its address
// has asked. So an address that an endpoint gets is not open before its connections are removed.
//
// A large table is read beside all other work, once for all addresses that have come by then, in half of the time at most. So an address
// waits for three readings at most, whatever others do.
type heirs struct {
	flows Flows
	// waiting returns when no packet is left that has met former entries of sets: such a packet may still begin a connection.
	waiting func(context.Context) error
	wake    func() // has Apply called again
	// owners are the interfaces by address in the worlds in force, until packets go to this one; nil: there are none. Of the other
	// IP versions, not in known, nothing is known.
	owners   map[netip.Addr]string
	known    map[uint8]bool
	due      map[netip.Addr]bool // addresses that wait for the next reading
	lost     bool                // endpoints have lost some of them since the last reading began
	under    map[netip.Addr]bool // those of the reading under way
	ends     chan error          // delivers how that has ended; nil: none is under way
	began    time.Time
	rests    time.Time // until then no reading begins
	slow     bool      // the last one has taken longer than patience
	patience time.Duration
}

func newHeirs(kernel Kernel, w *world) *heirs {
	return &heirs{flows: kernel.Flows, waiting: func(ctx context.Context) error { return w.unseen.waiting(ctx) },
		wake: func() { kernel.Node.Nudge(0) }, patience: removalPatience, known: map[uint8]bool{}, due: map[netip.Addr]bool{}}
}

// resume notes the owners of addresses in the worlds in force, and by another dataplane that judges beside them. If those of the worlds cannot
// be read, the connections of all endpoints are removed: any of them may be a former owner's.
func (h *heirs) resume(worlds []*inForce, sets ipsets.Kernel, former map[netip.Addr]string, log *slog.Logger) {
	for _, w := range worlds {
		for family := range w.names {
			h.known[family] = true
		}
	}
	if former != nil {
		h.known = map[uint8]bool{4: true, 6: true}
	}
	if len(h.known) == 0 {
		return
	}
	e, err := readWorlds(worlds, sets)
	if err != nil {
		log.Warn("whose addresses are in force is not known, so live connections of all pods end", "err", err)
		e = &Enforced{Locals: map[netip.Addr]string{}}
	}
	h.owners = e.Locals
	for a, name := range former {
		if was := h.owners[a]; was != "" && was != name {
			name = "" // an agent was killed in a switch, and the owner has changed
		}
		h.owners[a] = name
	}
}

// formerOwners returns the owners of addresses by another dataplane; nil: there is none.
func formerOwners(kernel Kernel) map[netip.Addr]string {
	if kernel.Former == nil {
		return nil
	}
	return kernel.Former()
}

// adopt continues the owners of heirs of this agent, if their connections are not removed although packets may go to its world.
func (h *heirs) adopt(of *heirs) {
	of.wait()
	if of.owners != nil {
		h.owners, h.known = of.owners, of.known
	}
}

// inherit removes the connections of addresses that have other endpoints now than in the worlds in force: the owner has changed while no agent
// ran. Call it before packets go to this world: until then a new endpoint has no connections.
func (h *heirs) inherit(owners func() map[netip.Addr]string) error {
	if h.owners == nil {
		return nil
	}
	now := owners()
	if maps.Equal(h.owners, now) {
		return nil
	}
	if err := endConnections(h.flows, h.reassigned(now)); err != nil {
		return fmt.Errorf("end connections of addresses that have other endpoints now: %w", err)
	}
	return nil
}

// succeed does that once more when packets go to this world. Until then a former owner that still runs could begin a connection again, since
// the former world allowed that. The present owner may lose a connection that it has begun since.
func (h *heirs) succeed(owners func() map[netip.Addr]string) error {
	if h.owners == nil {
		return nil
	}
	if now := owners(); !maps.Equal(h.owners, now) {
		if err := h.waiting(context.Background()); err != nil {
			return fmt.Errorf("wait for packets that are being judged: %w", err)
		}
		if err := endConnections(h.flows, h.reassigned(now)); err != nil {
			return fmt.Errorf("end connections that former owners of addresses have begun until packets went to the new chains: %w", err)
		}
	}
	h.owners = nil
	return nil
}

// reassigned reports whether an address has another owner than in the worlds in force.
func (h *heirs) reassigned(now map[netip.Addr]string) func(netip.Addr) bool {
	return func(a netip.Addr) bool { return h.known[familyOf(a)] && h.owners[a] != now[a] }
}

// note notes addresses that endpoints have lost, and are closed for, and others that endpoints have got.
func (h *heirs) note(lost, got []netip.Addr) {
	h.lost = h.lost || len(lost) > 0
	for _, list := range [][]netip.Addr{lost, got} {
		for _, a := range list {
			h.due[a] = true
		}
	}
}

// has reports whether there may be connections of a former owner of the address.
func (h *heirs) has(a netip.Addr) bool { return h.due[a] || h.under[a] }

// end begins to remove the connections of addresses that are due, or notes how that has ended. It repeats what has failed.
func (h *heirs) end() error {
	if err := h.ended(0); err != nil || h.ends != nil || len(h.due) == 0 || time.Now().Before(h.rests) {
		return err
	}
	remove, ends := h.removal(h.due, h.lost), make(chan error, 1)
	h.under, h.due, h.lost = h.due, map[netip.Addr]bool{}, false
	h.ends, h.began = ends, time.Now()
	go func() { ends <- remove() }()
	if !h.slow {
		if err := h.ended(h.patience); err != nil || h.ends == nil {
			return err
		}
	}
	noticed := make(chan error, 1)
	h.ends = noticed
	go func() {
		noticed <- <-ends
		h.wake()
	}()
	return nil
}

// removal returns what removes connections with these ends. lost: packets may be under way that have found a former owner. It uses nothing that
// changes.
func (h *heirs) removal(list map[netip.Addr]bool, lost bool) func() error {
	flows, waiting := h.flows, h.waiting
	return func() error {
		if lost {
			if err := waiting(context.Background()); err != nil {
				return fmt.Errorf("wait for packets of former owners of addresses: %w", err)
			}
		}
		var errs []error
		for _, family := range []conntrack.Family{conntrack.IPv4, conntrack.IPv6} {
			of := map[netip.Addr]bool{}
			for a := range list {
				if a.Is4() == (family == conntrack.IPv4) {
					of[a] = true
				}
			}
			if len(of) > 0 {
				_, err := flows.DeleteAddresses(family, func(a netip.Addr) bool { return of[a] })
				errs = append(errs, err)
			}
		}
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("end connections of former owners of %d addresses: %w", len(list), err)
		}
		return nil
	}
}

// ended notes how the reading under way has ended, if it ends within the given time.
func (h *heirs) ended(within time.Duration) error {
	if h.ends == nil {
		return nil
	}
	if within > 0 {
		late := time.NewTimer(within)
		defer late.Stop()
		select {
		case err := <-h.ends:
			return h.noteEnd(err)
		case <-late.C:
		}
	}
	select {
	case err := <-h.ends:
		return h.noteEnd(err)
	default:
		return nil
	}
}

// noteEnd notes the end of a reading. After a long one the next rests for as long.
func (h *heirs) noteEnd(err error) error {
	now := time.Now()
	took := now.Sub(h.began)
	if h.slow = took > h.patience; h.slow {
		h.rests = now.Add(took)
		time.AfterFunc(took, h.wake)
	}
	if err != nil {
		maps.Copy(h.due, h.under)
		h.lost = true
	}
	h.ends, h.under = nil, nil
	return err
}

// wait waits for the reading under way. If it fails, its addresses are due again.
func (h *heirs) wait() {
	if h.ends != nil {
		_ = h.noteEnd(<-h.ends)
	}
}
