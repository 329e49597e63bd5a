// Package ipsets programs the kernel's IP sets over netlink, without the ipset binary. Each entry of a set carries a mark
// (skbinfo), which a rule `-j SET --map-set NAME dir --map-mark` puts on the packet.
//
// Conn speaks to the kernel, Fake is a kernel in memory, and Set keeps one set as its user wants it.
//
// An entry of Net occupies 52 bytes of the kernel's memory (IPv6: 68) and 73 of a Set's. Writing 100,000 entries lasts 0.1 s, and
// reading them back as long (TestAHundredThousandEntries).
package ipsets

import (
	"fmt"
	"net/netip"
)

// Type is the kind of keys in a set, by the kernel's name for the type.
type Type string

const (
	// Net has prefixes. The longest one that contains the packet's address matches.
	Net Type = "hash:net"
	// NetInterface has pairs of a prefix and the name of an interface. The kernel accepts 64 interfaces for a prefix
	// (ErrCrowded): all of them are in one bucket of its table.
	NetInterface Type = "hash:net,iface"
	// NetPort has prefixes with a protocol and a port. The longest one that contains the address and has the packet's
	// protocol and port matches.
	NetPort Type = "hash:net,port"
)

// Family is the IP family of all addresses of a set, with the kernel's numbers.
type Family uint8

const (
	IPv4 Family = 2
	IPv6 Family = 10
)

func (f Family) String() string {
	if f == IPv6 {
		return "IPv6"
	}
	return "IPv4"
}

// bits is the length of an address.
func (f Family) bits() int {
	if f == IPv6 {
		return 128
	}
	return 32
}

// Spec has the properties with which a set is created.
type Spec struct {
	Name       string // at most 31 bytes
	Type       Type
	Family     Family
	MaxEntries uint32 // entries the kernel accepts; 0: its default of 65,536
	HashSize   uint32 // buckets to begin with; 0: the kernel's default of 1,024. The kernel adds buckets as the set grows
}

// Key has the properties of a packet that an entry matches. Fields that the set's type does not have are zero.
type Key struct {
	Prefix    netip.Prefix
	Interface string // at most 15 bytes
	Protocol  uint8  // never 0 with NetPort
	Port      uint16
	// Flags are the kernel's flags for bridge ports (physdev) and prefixes of names (wildcard). Margay writes entries without them.
	// Entries of others may have them, and cannot be deleted without naming them.
	Flags uint8
}

// Mark is the change of the packet mark by a matching entry: mark = mark &^ Mask ^ Value. All entries of a set should have one
// mask: a lookup while an entry is overwritten may see the new value with the old mask.
type Mark struct{ Value, Mask uint32 }

// Entry is one element of a set.
type Entry struct {
	Key
	Mark Mark
	// NoMatch ends a lookup with "not in the set": an exception inside a shorter prefix.
	NoMatch bool
}

// Change is one write: the entry is added or, if its key is there, overwritten; with Remove the key's entry is deleted.
type Change struct {
	Entry
	Remove bool
}

// Header describes a set in the kernel.
type Header struct {
	Spec
	Revision   uint8
	HasMarks   bool   // created with skbinfo
	Entries    uint32 // elements; halves of a whole address space count each
	Memory     uint32 // bytes that the kernel counts for the set
	References uint32 // rules and sets that refer to it
}

func (k Key) String() string {
	s := k.Prefix.String()
	if k.Interface != "" {
		s += "," + k.Interface
	}
	if k.Protocol != 0 {
		s += fmt.Sprintf(",proto %d:%d", k.Protocol, k.Port)
	}
	return s
}

// Kernel holds sets; Conn and Fake implement it. The kernel's types Net and NetPort refuse entries of 0.0.0.0/0 and ::/0. A Kernel
// writes them as the two halves of the address space, and lists them as one entry if both halves have the same mark. So an entry of
// a half overwrites a half of the whole, and deleting the whole deletes both halves; Set restores the entries in question.
type Kernel interface {
	// Create makes an empty set with marks. ErrExists: the name is in use.
	Create(Spec) error
	// Destroy removes a set. ErrNoSet: there is none; ErrInUse: a rule refers to it. Kernels before 6.7 free a set that a packet may
	// still look up: wait between the removal of the last rule and Destroy.
	Destroy(name string) error
	// Swap exchanges the sets behind two names in one step for packets, whatever rules refer to them. ErrNoSet: one of them does not
	// exist; ErrType: the kernel does not exchange sets of these types. Before Destroy of either, wait as after the removal of a rule.
	Swap(name, with string) error
	// Names returns the names of the sets that begin with prefix, sorted. Other sets are not looked at.
	Names(prefix string) ([]string, error)
	// Header describes a set.
	Header(name string) (Header, error)
	// List passes each entry of a set to each, in no particular order. After an error it may have passed only a part.
	List(spec Spec, each func(Entry)) error
	// Write makes the changes in their order. Deleting an entry that does not exist is no error. It stops at the first change that
	// fails, and returns how many were made before it; every change is one atomic step for packets.
	Write(spec Spec, changes []Change) (made int, err error)
}
