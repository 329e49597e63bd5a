package iptables

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/ipsets"
)

// maxAddresses bounds the addresses and prefixes of a family, and maxEndpoints the addresses of this node's endpoints.
const (
	maxAddresses = 1 << 20
	maxEndpoints = 1 << 16
)

// families are the IP versions. Each has its own sets and its own tables.
var families = [...]uint8{4, 6}

// familyOf is the IP version of an address.
func familyOf(a netip.Addr) uint8 {
	if a.Is4() {
		return 4
	}
	return 6
}

// familySets are the sets of one IP version.
type familySets struct {
	own     *ipsets.Set // addresses and interfaces of endpoints that are open
	owned   *ipsets.Set // addresses of endpoints, nodes and Services that pods list as further sources, and of all nodes
	egress  *ipsets.Set // address and interface -> slot of the egress policy
	ingress *ipsets.Set // address and interface -> slot of the ingress policy
	class   *ipsets.Set // address or prefix -> class
}

// sets are the kernel's sets of one world. Their entries belong to the parts that write them.
type sets struct {
	kernel ipsets.Kernel
	of     map[uint8]familySets
	listed []*ipsets.Set // of further sources
	turn   int           // of the set that was compared last between repairs
	rest   time.Time     // until when none is
}

// Between repairs the entries of a set are compared while the loop waits, 1 to 2 µs for each. So that is done in sets of up to mostCompared
// entries, in each look with the next ones for some comparedFor, and for one part of comparedShare of the time.
const (
	mostCompared  = 1 << 13
	comparedFor   = 5 * time.Millisecond
	comparedShare = 100
)

func newSets(kernel ipsets.Kernel, worlds map[uint8]chains.Names) *sets {
	s := &sets{kernel: kernel, of: map[uint8]familySets{}}
	for _, family := range families {
		names, number := worlds[family].Sets(family), ipsets.IPv4
		if family == 6 {
			number = ipsets.IPv6
		}
		pairs := func(name string) *ipsets.Set {
			return ipsets.NewSet(kernel, ipsets.Spec{Name: name, Type: ipsets.NetInterface, Family: number, MaxEntries: maxEndpoints})
		}
		s.of[family] = familySets{
			own: pairs(names.Own), egress: pairs(names.Egress), ingress: pairs(names.Ingress),
			owned: ipsets.NewSet(kernel, ipsets.Spec{Name: names.Owned, Type: ipsets.Net, Family: number, MaxEntries: maxAddresses}),
			class: ipsets.NewSet(kernel, ipsets.Spec{Name: names.Class, Type: ipsets.Net, Family: number, MaxEntries: maxAddresses}),
		}
	}
	return s
}

// all are the sets of both versions.
func (s *sets) all() []*ipsets.Set { return slices.Concat(s.fixed(), s.listed) }

// list adds sets of further sources to those that repair compares; unlist removes them.
func (s *sets) list(added ...*ipsets.Set) { s.listed = append(s.listed, added...) }

func (s *sets) unlist(gone ...*ipsets.Set) {
	s.listed = slices.DeleteFunc(s.listed, func(set *ipsets.Set) bool { return slices.Contains(gone, set) })
}

// fixed are those that every world has.
func (s *sets) fixed() []*ipsets.Set {
	var list []*ipsets.Set
	for _, family := range families {
		list = append(list, s.of[family].all()...)
	}
	return list
}

// all are the sets of one version.
func (f familySets) all() []*ipsets.Set {
	return []*ipsets.Set{f.own, f.owned, f.egress, f.ingress, f.class}
}

// ensure creates the sets, or empties those left by an agent that stopped before it enforced anything.
func (s *sets) ensure() error {
	for _, set := range s.all() {
		if err := set.Ensure(); err != nil {
			return fmt.Errorf("make the IP sets: %w", err)
		}
	}
	return nil
}

// repair writes again what others have changed, logs it, and counts it. altered: there was something, repaired or not.
func (s *sets) repair(log *slog.Logger) (repaired int, altered bool, err error) {
	var errs []error
	for _, set := range s.all() {
		r, err := set.Resync()
		differences := []any{"set", set.Spec().Name, "missing", r.Missing, "changed", r.Changed, "foreign", r.Foreign, "deleted", r.Created, "replaced", r.Replaced, "entry", r.Example}
		altered = altered || r.Len() > 0
		switch n := r.Len(); {
		case n > 0 && err == nil:
			log.Warn("an IP set had been changed by somebody else, repaired", differences...)
			repaired += n
		case n > 0:
			log.Warn("an IP set has been changed by somebody else, not repaired yet", append(differences, "err", err)...)
		}
		errs = append(errs, err)
	}
	return repaired, altered, errors.Join(errs...)
}

// touched reports whether others have added or removed entries, or a whole set, or altered entries of one whose turn it is.
func (s *sets) touched() (bool, error) {
	for _, set := range s.all() {
		if same, err := set.Glance(); !same || err != nil {
			return !same, err
		}
	}
	return s.altered()
}

// altered reports whether others have altered entries of the sets whose turn it is. The kernel shows nothing of that without listing them.
func (s *sets) altered() (found bool, err error) {
	began := time.Now()
	if began.Before(s.rest) {
		return false, nil
	}
	all := s.all()
	took := time.Duration(0)
	for i := 0; i < len(all) && !found && err == nil && took < comparedFor; i++ {
		s.turn = (s.turn + 1) % len(all)
		if set := all[s.turn]; set.Len() <= mostCompared {
			found, err = set.Differs()
		}
		took = time.Since(began)
	}
	s.rest = began.Add(comparedShare * took)
	return found, err
}

// destroySets removes all sets of a world of each IP version. No rule may refer to them, and no packet may be left in a rule that
// referred to them.
func destroySets(kernel ipsets.Kernel, worlds map[uint8]chains.Names) error {
	var errs []error
	for family, names := range worlds {
		list, err := kernel.Names(fmt.Sprintf("%s%d-", names.Prefix(), family))
		errs = append(errs, err)
		for _, name := range list {
			if err := kernel.Destroy(name); err != nil && !errors.Is(err, ipsets.ErrNoSet) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// single is the prefix of one address.
func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
