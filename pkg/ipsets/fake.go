package ipsets

import (
	"net/netip"
	"slices"
	"strings"
)

// Fake is a Kernel in memory, for tests of users. Its sets have limits, types, references and lookups as the kernel's have. It is
// not safe for concurrent use.
type Fake struct {
	// Refuse, if set, is asked before each change; its error is Write's.
	Refuse func(set string, c Change) error
	// Writes counts the changes that Write made.
	Writes int

	sets map[string]*fakeSet
}

type fakeSet struct {
	header  Header
	entries map[Key]Entry // halves in place of whole address spaces, as in the kernel
	of      map[netip.Prefix]int
}

// NewFake returns a kernel without sets.
func NewFake() *Fake { return &Fake{sets: map[string]*fakeSet{}} }

var (
	_ Kernel = (*Fake)(nil)
	_ Kernel = (*Conn)(nil)
)

// Create is Kernel's.
func (f *Fake) Create(s Spec) error {
	if _, ok := f.sets[s.Name]; ok {
		return &Error{Op: "create", Set: s.Name, Err: ErrExists}
	}
	if s.MaxEntries == 0 {
		s.MaxEntries = defaultMaxEntries
	}
	f.sets[s.Name] = &fakeSet{header: Header{Spec: s, Revision: s.Type.revision(), HasMarks: true}, entries: map[Key]Entry{}, of: map[netip.Prefix]int{}}
	return nil
}

func (f *Fake) set(op, name string) (*fakeSet, error) {
	if set, ok := f.sets[name]; ok {
		return set, nil
	}
	return nil, &Error{Op: op, Set: name, Err: ErrNoSet}
}

// Destroy is Kernel's.
func (f *Fake) Destroy(name string) error {
	set, err := f.set("destroy", name)
	if err != nil {
		return err
	}
	if set.header.References != 0 {
		return &Error{Op: "destroy", Set: name, Err: ErrInUse}
	}
	delete(f.sets, name)
	return nil
}

// Swap is Kernel's.
func (f *Fake) Swap(name, with string) error {
	a, err := f.set("swap", name)
	if err != nil {
		return err
	}
	b, err := f.set("swap", with)
	if err != nil {
		return err
	}
	if a.header.Family != b.header.Family || a.header.Type != b.header.Type {
		return &Error{Op: "swap with " + with, Set: name, Err: ErrType}
	}
	f.sets[name], f.sets[with] = b, a
	a.header.Name, b.header.Name = with, name
	a.header.References, b.header.References = b.header.References, a.header.References
	return nil
}

// Names is Kernel's.
func (f *Fake) Names(prefix string) ([]string, error) {
	var names []string
	for name := range f.sets {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Header is Kernel's.
func (f *Fake) Header(name string) (Header, error) {
	set, err := f.set("read the header", name)
	if err != nil {
		return Header{}, err
	}
	set.header.Entries = uint32(len(set.entries))
	return set.header, nil
}

// List is Kernel's.
func (f *Fake) List(s Spec, each func(Entry)) error {
	set, err := f.set("list", s.Name)
	if err != nil {
		return err
	}
	j := joiner{kind: s.Type, each: each}
	for _, e := range set.entries {
		j.add(e)
	}
	j.end()
	return nil
}

// Write is Kernel's.
func (f *Fake) Write(s Spec, changes []Change) (made int, err error) {
	if len(changes) == 0 {
		return 0, nil
	}
	set, err := f.set(operation(changes[0]), s.Name)
	if err != nil {
		return 0, err
	}
	for i, c := range changes {
		err := set.header.check(c.Entry)
		if err == nil && f.Refuse != nil {
			err = f.Refuse(s.Name, c)
		}
		split(set.header.Type, c, func(part Change) {
			if err == nil {
				err = set.write(part)
			}
		})
		if err != nil {
			return i, &Error{Op: operation(c), Set: s.Name, Entry: c.Key.String(), Err: err}
		}
		f.Writes++
	}
	return len(changes), nil
}

func (set *fakeSet) write(c Change) error {
	_, had := set.entries[c.Key]
	switch {
	case c.Remove && had:
		delete(set.entries, c.Key)
		set.of[c.Prefix]--
	case c.Remove:
	case !had && len(set.entries) >= int(set.header.MaxEntries):
		return ErrFull
	case !had && set.header.Type == NetInterface && set.of[c.Prefix] >= maxOfPrefix:
		return ErrCrowded
	default:
		set.entries[c.Key] = c.Entry
		if !had {
			set.of[c.Prefix]++
		}
	}
	return nil
}

// Refer adds to the number of rules that refer to a set; rules may be negative.
func (f *Fake) Refer(name string, rules int) error {
	set, err := f.set("refer to", name)
	if err == nil {
		set.header.References = uint32(int(set.header.References) + rules)
	}
	return err
}

// Lookup returns the mark that a packet with these properties finds: that of the longest prefix that matches. false: the packet is
// not in the set. Properties that the set's type does not have are ignored.
func (f *Fake) Lookup(name string, packet Key) (Mark, bool) {
	set, ok := f.sets[name]
	if !ok {
		return Mark{}, false
	}
	switch set.header.Type {
	case Net:
		packet.Interface, packet.Protocol, packet.Port = "", 0, 0
	case NetInterface:
		packet.Protocol, packet.Port = 0, 0
	case NetPort:
		packet.Interface = ""
	}
	addr := packet.Prefix.Addr()
	if addr.BitLen() != set.header.Family.bits() {
		return Mark{}, false
	}
	for bits := addr.BitLen(); bits >= 0; bits-- {
		packet.Prefix = netip.PrefixFrom(addr, bits).Masked()
		if e, ok := set.entries[packet]; ok {
			return e.Mark, !e.NoMatch
		}
	}
	return Mark{}, false
}
