// Package marks finds others on the node that use bits of packet marks: rules of nftables and iptables (both of its
// backends) and routing rules of this network namespace. It asks the kernel, so it needs no tools beside it, and changes
// nothing.
//
//   - marks.go: what is found; find_linux.go: asking the kernel
//   - expressions.go, targets.go: what a rule of nftables does to the mark, iptables' rules among them
//   - blob.go: the rules of iptables' legacy backend
//
// Not seen are marks set by programs of others at TC or XDP, by sockets (SO_MARK), by tc's skbedit and by the target SET
// --map-mark.
package marks

import "fmt"

// Use is what one rule does to the marks of packets.
type Use struct {
	// Changes are bits that may have another value after the rule: set, cleared, or copied from elsewhere.
	Changes uint32
	// Reads are bits that the rule compares.
	Reads uint32
}

// User is a rule that uses bits of packet marks.
type User struct {
	Where string // "nftables ip mangle PREROUTING rule 3" (its handle), "iptables-legacy mangle PREROUTING rule 1", "ip rule 32000"
	Use
}

// String is one line for people.
func (u User) String() string {
	switch {
	case u.Changes != 0 && u.Reads != 0:
		return fmt.Sprintf("%s changes bits %#08x and reads %#08x", u.Where, u.Changes, u.Reads)
	case u.Changes != 0:
		return fmt.Sprintf("%s changes bits %#08x", u.Where, u.Changes)
	}
	return fmt.Sprintf("%s reads bits %#08x", u.Where, u.Reads)
}

// Of leaves of users those that use some of the bits, with nothing but these.
func Of(users []User, bits uint32) []User {
	var some []User
	for _, u := range users {
		u.Changes &= bits
		u.Reads &= bits
		if u.Use != (Use{}) {
			some = append(some, u)
		}
	}
	return some
}
