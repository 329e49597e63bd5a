package ipsets

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
)

// applyBatch bounds the changes that Apply sends to the kernel at a time, and so the memory for undoing them.
const applyBatch = 4096

// Set keeps one set of the kernel as its user wants it. It writes differences only, and hides three properties of the kernel from
// its user:
//
// A prefix length that was ever used keeps an entry, the anchor. Removing the last entry of a length makes the kernel's lookups
// of other lengths miss for a moment (it shifts its list of lengths under readers). An anchor changes no verdict: see anchor.
//
// The whole address space is written as its two halves. A half that the user has written itself hides that of the whole, which
// returns when the user's is deleted.
//
// The limit of entries in the kernel is larger than the user's, so that anchors find room, and so that each set has its own; see made.
//
// A Set is not safe for concurrent use.
type Set struct {
	kernel   Kernel
	spec     Spec
	held     map[packed]value // what the kernel holds: entries, halves and anchors
	special  map[Key]Entry    // the entries that the user wants for special keys, see isSpecial
	anchored [129]bool        // by prefix length
	round    bool             // flips with each reading; see value.seen
	unsure   bool             // a write ended in an unknown way: read back before the next
	observed *Observation     // nil: Observe was not called

	replacement replacement
}

// NewSet returns a Set that is to be empty. Ensure makes it so.
func NewSet(kernel Kernel, spec Spec) *Set {
	if spec.MaxEntries == 0 {
		spec.MaxEntries = defaultMaxEntries
	}
	spec.MaxEntries += uint32(spec.Family.bits()) + 2 + ownLimit(spec.Name)
	return &Set{kernel: kernel, spec: spec, held: map[packed]value{}, special: map[Key]Entry{}, replacement: replacement{kernel: kernel, spec: spec}}
}

// Spec returns the name, type and limits of the set.
func (s *Set) Spec() Spec { return s.spec }

// Ensure creates the set and writes its entries, or adopts a set of its name and repairs its entries. A set of another type
// under this name is replaced, unless rules refer to it: then the error is ErrType.
func (s *Set) Ensure() error {
	h, err := s.kernel.Header(s.spec.Name)
	switch mismatch := s.spec.adoptable(h); {
	case errors.Is(err, ErrNoSet):
		return s.create()
	case err != nil:
		return err
	case mismatch == nil:
		_, err := s.Resync()
		return err
	case h.References != 0:
		return &Error{Op: "adopt", Set: s.spec.Name, Err: mismatch}
	}
	if err := s.kernel.Destroy(s.spec.Name); err != nil {
		return err
	}
	return s.create()
}

func (s *Set) create() error {
	if err := s.kernel.Create(s.spec); err != nil {
		return err
	}
	_, err := s.Resync()
	return err
}

// Apply makes the changes in their order; each is one step for packets, except that of the whole address space, which is one
// step for each half. It stops at the first change that fails and returns how many it made before: those are wanted from now
// on, the others are not. A change that makes no difference writes nothing, so the same list can be applied again.
func (s *Set) Apply(changes []Change) (made int, err error) {
	if s.unsure {
		if _, err := s.Resync(); err != nil {
			return 0, err
		}
	}
	b := batch{set: s}
	for i, c := range changes {
		if err := s.check(c.Entry); err != nil {
			return b.end(i, &Error{Op: operation(c), Set: s.spec.Name, Entry: c.Key.String(), Err: err})
		}
		if s.rare(c.Key) {
			if n, err := b.end(i, nil); err != nil {
				return n, err
			}
			if err := s.applyRare(c); err != nil {
				return i, err
			}
			continue
		}
		b.add(i, c)
		if len(b.writes) == applyBatch {
			if n, err := b.end(i+1, nil); err != nil {
				return n, err
			}
		}
	}
	return b.end(len(changes), nil)
}

// check refuses entries that Kernel would refuse, and keys that are reserved for anchors.
func (s *Set) check(e Entry) error {
	if e.Protocol == anchorProtocol || e.Interface == anchorInterface {
		return fmt.Errorf("%w: this key is reserved", ErrEntry)
	}
	return s.spec.check(e)
}

// rare reports whether a change of the key may need more than one write, or a write of another value.
func (s *Set) rare(k Key) bool {
	return !s.anchored[max(k.Prefix.Bits(), 1)] || k.Prefix.Bits() <= 1 || s.spec.Type == Net && k.Prefix.Contains(anchorPlace(s.spec.Family))
}

// applyRare writes a change and the further writes that it requires. If it fails halfway, the set is read back before the next
// change.
func (s *Set) applyRare(c Change) error {
	old, had := s.special[c.Key]
	b := batch{set: s}
	if err := s.anchor(&b, c.Prefix.Bits()); err != nil {
		return err
	}
	if s.spec.isSpecial(c.Key) {
		s.want(c.Key, c.Entry, !c.Remove)
		for _, k := range s.affected(c.Key) {
			e, wanted := s.effective(k)
			e.Key = k
			b.add(0, Change{Entry: e, Remove: !wanted})
		}
	} else {
		b.add(0, c)
	}
	_, err := b.end(1, nil)
	if err != nil && s.spec.isSpecial(c.Key) {
		s.want(c.Key, old, had)
		s.believe(s.affected(c.Key))
		s.unsure = true
	}
	return err
}

// believe records the wanted entries of keys as held by the kernel, though they may not be; reading back repairs the kernel.
func (s *Set) believe(keys []Key) {
	for _, k := range keys {
		if e, wanted := s.effective(k); wanted {
			s.held[pack(k)] = value{mark: e.Mark, noMatch: e.NoMatch, seen: s.round}
		} else {
			delete(s.held, pack(k))
		}
	}
}

func (s *Set) want(k Key, e Entry, wanted bool) {
	if wanted {
		s.special[k] = e
	} else {
		delete(s.special, k)
	}
}

// Len is the number of entries in the kernel: those wanted and the anchors; the whole address space counts as two.
func (s *Set) Len() int { return len(s.held) }

// Get returns the entry that is wanted for a key.
func (s *Set) Get(k Key) (Entry, bool) {
	if s.spec.isSpecial(k) {
		e, ok := s.special[k]
		return e, ok
	}
	v, ok := s.held[pack(k)]
	return v.entry(k), ok
}

// Lookup returns the entry that a packet with these properties finds in the set: the one with the longest prefix that contains the
// packet's address. false: the packet is not in the set. It uses the Set's record of its writes and does not read the kernel.
func (s *Set) Lookup(packet Key) (Entry, bool) {
	addr := packet.Prefix.Addr()
	if addr.BitLen() != s.spec.Family.bits() {
		return Entry{}, false
	}
	for bits := addr.BitLen(); bits >= 0; bits-- {
		if !s.anchored[bits] {
			continue
		}
		packet.Prefix = netip.PrefixFrom(addr, bits).Masked()
		if v, ok := s.held[pack(packet)]; ok {
			return v.entry(packet), !v.noMatch
		}
	}
	return Entry{}, false
}

// All yields the entries that are wanted, without anchors, in no particular order. The Set must not be changed meanwhile.
func (s *Set) All() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for _, e := range s.special {
			if !yield(e) {
				return
			}
		}
		for p, v := range s.held {
			k := p.key(s.spec.Family)
			if s.spec.isSpecial(k) || s.isAnchor(k) {
				continue
			}
			if !yield(v.entry(k)) {
				return
			}
		}
	}
}
