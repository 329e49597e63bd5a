package iptables

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/dataplane/plans"
	"github.com/margay-project/margay/pkg/ipsets"
)

// addresses are the entries of addresses and prefixes in the sets of classes. One entry stands for all memberships of an address,
// so one write changes all of them (D-8).
type addresses struct {
	sets      *sets
	marks     chains.Marks
	unwritten plans.Unwritten        // each has the class of the prefix around it
	unowned   map[netip.Prefix]error // owned, and not in the set of owned addresses: the kernel refused the entry
	journal   *journal
}

func newAddresses(sets *sets, marks chains.Marks, j *journal) *addresses {
	return &addresses{sets: sets, marks: marks, unwritten: plans.Unwritten{}, unowned: map[netip.Prefix]error{}, journal: j}
}

// everything returns the prefix of all addresses of a family, and the class of addresses that are in no set.
func everything(family uint8) (p netip.Prefix, class uint32) {
	if family == 4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0), classes.None4
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0), classes.None6
}

// begin writes the class of all addresses that have no entry of their own. Without it a lookup would find nothing.
func (a *addresses) begin() error {
	for _, family := range families {
		p, class := everything(family)
		c, err := a.change(classes.AddrChange{Prefix: p, Class: class})
		if err != nil {
			return err
		}
		if err := write(a.sets.of[family].class, c); err != nil {
			return err
		}
	}
	return nil
}

// change returns the write that makes a change of an address's entry.
func (a *addresses) change(c classes.AddrChange) (ipsets.Change, error) {
	key := ipsets.Key{Prefix: c.Prefix}
	if p, none := everything(familyOf(c.Prefix.Addr())); c.Gone && c.Prefix == p {
		c.Gone, c.Class = false, none
	}
	if c.Gone {
		return ipsets.Change{Entry: ipsets.Entry{Key: key}, Remove: true}, nil
	}
	mark, err := a.marks.Class(c.Class)
	return ipsets.Change{Entry: ipsets.Entry{Key: key, Mark: ipsets.Mark{Value: mark.Value, Mask: mark.Mask}}}, err
}

// write makes changes, those of each family in their order. refused: the kernel refused some. They are in unwritten, and their old
// entries are removed, since policy may allow the old class packets that it denies the new one.
func (a *addresses) write(changes []classes.AddrChange) (refused bool) {
	for _, c := range changes {
		a.own(c.Prefix, isOwned(c))
	}
	defer func() {
		for _, c := range changes {
			a.journal.address(c.Prefix)
		}
	}()
	byFamily := map[uint8][]classes.AddrChange{}
	for _, c := range changes {
		family := familyOf(c.Prefix.Addr())
		byFamily[family] = append(byFamily[family], c)
	}
	for _, family := range families {
		for rest := byFamily[family]; len(rest) > 0; {
			made, err := a.writeSome(a.sets.of[family].class, rest)
			for _, c := range rest[:made] {
				delete(a.unwritten, c.Prefix)
			}
			if rest = rest[made:]; err == nil {
				continue
			}
			refused = true
			a.unwritten[rest[0].Prefix] = plans.Refused{Change: rest[0], Cause: err}
			a.forget(rest[0].Prefix)
			rest = rest[1:]
		}
	}
	return refused
}

// writeSome makes changes of one family up to the first that fails, and returns the number made.
func (a *addresses) writeSome(to *ipsets.Set, list []classes.AddrChange) (made int, err error) {
	writes := make([]ipsets.Change, 0, len(list))
	var bad error
	for _, c := range list {
		w, err := a.change(c)
		if err != nil {
			bad = err
			break
		}
		writes = append(writes, w)
	}
	if made, err = to.Apply(writes); err != nil {
		return made, err
	}
	return made, bad
}

// forget removes the entry of a prefix. If that fails, too, the address keeps its old class; see believed.
func (a *addresses) forget(p netip.Prefix) {
	c, err := a.change(classes.AddrChange{Prefix: p, Gone: true})
	if err == nil {
		_ = write(a.sets.of[familyOf(p.Addr())].class, c)
	}
}

// believed returns the class in the kernel's entry of a prefix; not ok: the prefix has no entry.
func (a *addresses) believed(p netip.Prefix) (class uint32, ok bool) {
	e, ok := a.sets.of[familyOf(p.Addr())].class.Get(ipsets.Key{Prefix: p})
	if !ok {
		return 0, false
	}
	return a.marks.ClassOf(e.Mark.Value), true
}

// found returns the class that packets find for an address at present.
func (a *addresses) found(addr netip.Addr) (class uint32) {
	if e, ok := a.sets.of[familyOf(addr)].class.Lookup(ipsets.Key{Prefix: single(addr)}); ok {
		return a.marks.ClassOf(e.Mark.Value)
	}
	_, class = everything(familyOf(addr))
	return class
}

// hasRoom reports whether marks have room for a class.
func (a *addresses) hasRoom(class uint32) bool {
	_, err := a.marks.Class(class)
	return err == nil
}

// isOwned reports whether the addresses of an entry are no further sources.
func isOwned(c classes.AddrChange) bool {
	return !c.Gone && uint32(c.Flags)&(bpf.AddrOwned|bpf.AddrHost) != 0
}

// own makes a prefix one whose addresses are owned, or not.
func (a *addresses) own(p netip.Prefix, owned bool) {
	set, key := a.sets.of[familyOf(p.Addr())].owned, ipsets.Key{Prefix: p}
	if _, is := set.Get(key); is == owned {
		delete(a.unowned, p)
		return
	}
	err := write(set, ipsets.Change{Entry: ipsets.Entry{Key: key}, Remove: !owned})
	if err == nil || !owned {
		delete(a.unowned, p) // an entry that cannot be removed denies, and the next comparison of the set removes it
		return
	}
	a.unowned[p] = err
}

// ownAgain tries again to write owned addresses that were refused.
func (a *addresses) ownAgain() {
	for p := range a.unowned {
		a.own(p, true)
	}
}

// doubt returns why it is not known of each address whether it is owned; empty: it is known.
func (a *addresses) doubt() string {
	if len(a.unwritten)+len(a.unowned) == 0 {
		return ""
	}
	return "further sources do not count while the address of some endpoint cannot be written to the kernel"
}

// err names addresses whose entries could not be written.
func (a *addresses) err() error {
	var errs []error
	for p, why := range a.unowned {
		errs = append(errs, fmt.Errorf("%s may not be a further source, and no further source counts until that is in the kernel: %w", p, why))
	}
	return errors.Join(append(errs, a.unwrittenErr())...)
}

func (a *addresses) unwrittenErr() error {
	return a.unwritten.Err(func(p netip.Prefix, cause error) error {
		return fmt.Errorf("%s belongs to no set of policy but those of the prefix around it: %w", p, cause)
	})
}
