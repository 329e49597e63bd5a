package iptables

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/ruleset/walk"
	"github.com/margay-project/margay/pkg/verify"
)

// readPatience bounds the time for reading all tables.
const readPatience = time.Minute

// reading is the kernel's state as read in one round. It does not change.
type reading struct {
	since   uint64 // the journal's clock when it began
	of      map[uint8]*familyRead
	listed  map[string]*set // sets of further sources; nil: it is not there
	entries []verify.Entry
	classes map[netip.Prefix]uint32
	config  readConfig
	// elsewhere is the other backend, if it has chains of an agent.
	elsewhere iptables.Backend
}

// readConfig is the part of the configuration that a reading needs.
type readConfig struct {
	marks  chains.Marks
	prefix string // of the names of workload interfaces
}

// familyRead are tables and sets of one IP version.
type familyRead struct {
	names chains.Names
	read  map[string]*iptables.Reading // by name of the table
	raw   *walk.Table
	table *walk.Table     // mangle
	sets  map[string]*set // by name; nil: it is not there
}

// set are the entries of a set.
type set struct {
	list    []ipsets.Entry
	entries map[netip.Prefix][]ipsets.Entry
}

// readKernel reads everything. It runs beside the loop: the parts of the state that it uses do not change while the state exists.
func (v *Verifier) readKernel() (*reading, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readPatience)
	defer cancel()
	s := v.state
	r := &reading{since: s.world.journal.clock.Load(), of: map[uint8]*familyRead{}, listed: map[string]*set{}, classes: map[netip.Prefix]uint32{},
		config: readConfig{s.static.base.Marks, s.config.InterfacePrefix}}
	for _, family := range families {
		f := &familyRead{names: s.world.names[family], read: map[string]*iptables.Reading{}, sets: map[string]*set{}}
		r.of[family] = f
		var err error
		for _, name := range tableNames {
			if f.read[name], err = iptables.ReadAll(ctx, s.world.of(name, family).Table, v.pause); err != nil {
				return nil, err
			}
		}
		f.raw = walk.NewTable(f.read["raw"].Saved)
		if f.table, err = walk.NewTableWith(f.read["mangle"].Saved, v.pause); err != nil {
			return nil, err
		}
		for _, of := range s.sets.of[family].all() {
			if f.sets[of.Spec().Name], err = readSet(v.lists(), of.Spec()); err != nil {
				return nil, err
			}
			if err := v.pause(); err != nil {
				return nil, err
			}
		}
		if err := v.addClasses(r, family); err != nil {
			return nil, err
		}
	}
	var err error
	if r.elsewhere, err = elsewhere(v.dataplane.kernel.Tools); err != nil {
		return nil, err
	}
	for _, spec := range v.listed {
		if r.listed[spec.Name], err = readSet(v.lists(), spec); err != nil {
			return nil, err
		}
		if err := v.pause(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// lists returns the connection through which sets are read.
func (v *Verifier) lists() ipsets.Kernel {
	if k := v.dataplane.kernel.Lists; k != nil {
		return k
	}
	return v.state.sets.kernel
}

// readSet lists a set; nil: it is not there, or has another type.
func readSet(kernel ipsets.Kernel, spec ipsets.Spec) (*set, error) {
	list, err := ipsets.ListAll(kernel, spec)
	if errors.Is(err, ipsets.ErrNoSet) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &set{list: list, entries: make(map[netip.Prefix][]ipsets.Entry, len(list))}
	for _, e := range list {
		s.entries[e.Prefix] = append(s.entries[e.Prefix], e)
	}
	return s, nil
}

// noClass is the class of addresses that have no entry.
const noClass = math.MaxUint32

// unusual are marks of entries that this agent would not write. Each gets a number of a class from firstUnusual on, beyond all
// numbers of classes.
type unusual struct{ list []ipsets.Entry }

const firstUnusual = 1 << 31

// class returns the class of an entry.
func (u *unusual) class(marks chains.Marks, e ipsets.Entry) uint32 {
	if e.NoMatch {
		return noClass
	}
	class := marks.ClassOf(e.Mark.Value)
	if v, err := marks.Class(class); err == nil && v.Value == e.Mark.Value && v.Mask == e.Mark.Mask {
		return class
	}
	i := slices.IndexFunc(u.list, func(o ipsets.Entry) bool { return o.Mark == e.Mark })
	if i < 0 {
		i = len(u.list)
		u.list = append(u.list, e)
	}
	return firstUnusual + uint32(i)
}

// mark returns the change that an entry with the class makes to marks of packets; not ok: there is no entry.
func (u *unusual) mark(marks chains.Marks, class uint32) (e walk.Entry, ok bool) {
	if i := int(class) - firstUnusual; i >= 0 {
		if i >= len(u.list) {
			return e, false
		}
		return walk.Entry{Mark: u.list[i].Mark.Value, Mask: u.list[i].Mark.Mask}, true
	}
	value, err := marks.Class(class)
	return walk.Entry{Mark: value.Value, Mask: value.Mask}, err == nil
}

// addClasses adds the entries of the set of classes of one IP version.
func (v *Verifier) addClasses(r *reading, family uint8) error {
	whole, _ := everything(family)
	r.classes[whole] = noClass
	if s := r.of[family].sets[r.of[family].names.Sets(family).Class]; s != nil {
		for i, e := range s.list {
			if i%1024 == 0 {
				if err := v.pause(); err != nil {
					return err
				}
			}
			r.classes[e.Prefix] = v.unusual.class(r.config.marks, e)
		}
	}
	for p, class := range r.classes {
		if familyOf(p.Addr()) == family {
			r.entries = append(r.entries, verify.Entry{Prefix: p, Class: class})
		}
	}
	return nil
}

// entry returns the entry that a lookup of an address finds.
func (r *reading) entry(a netip.Addr) verify.Entry {
	for bits := a.BitLen(); bits >= 0; bits-- {
		if p, err := a.Prefix(bits); err == nil {
			if class, ok := r.classes[p]; ok {
				return verify.Entry{Prefix: p, Class: class}
			}
		}
	}
	return verify.Entry{Prefix: single(a), Class: noClass}
}

func keyOf(a netip.Addr) ipsets.Key { return ipsets.Key{Prefix: single(a)} }

// Lookup implements walk.Sets.
func (f *familyRead) Lookup(name string, places []walk.Place, p *walk.Packet) (walk.Entry, bool, error) {
	s := f.sets[name]
	if s == nil {
		return walk.Entry{}, false, fmt.Errorf("there is no set %s", name)
	}
	addr := p.Addr(places[0])
	for bits := addr.BitLen(); bits >= 0; bits-- {
		prefix, err := addr.Prefix(bits)
		if err != nil {
			return walk.Entry{}, false, err
		}
		list := s.entries[prefix]
		if len(list) == 0 {
			continue
		}
		for _, e := range list {
			if len(places) < 2 || e.Interface == p.Interface(places[1]) {
				return walk.Entry{Mark: e.Mark.Value, Mask: e.Mark.Mask}, !e.NoMatch, nil
			}
		}
		return walk.Entry{}, false, nil
	}
	return walk.Entry{}, false, nil
}

// rule returns the text of the rule of a step; empty: the step is a chain's policy, or the rule is not known.
func (f *familyRead) rule(s walk.Step) string {
	read := f.read[s.Table]
	if read == nil {
		return ""
	}
	if c := read.Saved.Chain(s.Chain); c != nil && s.Index >= 0 && s.Index < len(c.Rules) {
		return c.Rules[s.Index].Text
	}
	return ""
}
