// Package conntrack reads and changes the kernel's table of tracked connections over netlink, without the conntrack binary.
// It reads the table as a stream: a full table costs no more memory than an empty one.
package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/nfnl"
)

// Family is an IP family, with the kernel's numbers.
type Family uint8

// The families: AF_INET and AF_INET6, and AF_UNSPEC for a Dump of both.
const (
	Both Family = 0
	IPv4 Family = 2
	IPv6 Family = 10
)

// familyOf returns the family of an address.
func familyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// Tuple has the fields that all packets of one direction of a connection have in common. Numbers are in the host's byte order.
type Tuple struct {
	Src, Dst         netip.Addr
	Protocol         uint8
	SrcPort, DstPort uint16 // of protocols with ports, such as TCP, UDP and SCTP
	ICMPID           uint16
	ICMPType         uint8
	ICMPCode         uint8
}

func (t Tuple) String() string {
	if t.Protocol == unix.IPPROTO_ICMP || t.Protocol == unix.IPPROTO_ICMPV6 {
		return fmt.Sprintf("protocol %d, %v to %v, type %d, id %d", t.Protocol, t.Src, t.Dst, t.ICMPType, t.ICMPID)
	}
	return fmt.Sprintf("protocol %d, %v to %v", t.Protocol, netip.AddrPortFrom(t.Src, t.SrcPort), netip.AddrPortFrom(t.Dst, t.DstPort))
}

// Status has the kernel's bits about an entry (enum ip_conntrack_status).
type Status uint32

// The bits that this package's users need.
const (
	SeenReply Status = 1 << 1 // packets of both directions were seen
	Assured   Status = 1 << 2 // the entry is kept when the table is full
	Confirmed Status = 1 << 3 // the entry is in the table
	SrcNAT    Status = 1 << 4 // the source of the original direction is translated
	DstNAT    Status = 1 << 5 // the destination of the original direction is translated
)

// States of TCP, as the kernel numbers them.
const (
	TCPSynSent     = 1
	TCPSynReceived = 2
	TCPEstablished = 3
	TCPFinWait     = 4
	TCPCloseWait   = 5
	TCPLastAck     = 6
	TCPTimeWait    = 7
	TCPClose       = 8
)

// Entry is one tracked connection. Original is the direction of the packet that opened it; Reply is the other one, which
// differs from the swapped Original if addresses are translated.
type Entry struct {
	Original, Reply Tuple
	Status          Status
	TCPState        uint8 // for TCP only: one of the states above
	PickedUp        bool  // for TCP only: the kernel has not seen its beginning. So it is for connections that Insert has added
	Mark            uint32
	Timeout         time.Duration // until the kernel removes the entry, if no packet comes
	Zone            uint16        // of both directions; 0 outside zones
	ID              uint32        // distinguishes entries of the same tuple at different times
	Packets, Bytes  [2]uint64     // original and reply; zero without the sysctl net.netfilter.nf_conntrack_acct
}

// Filter chooses entries by their mark: those whose mark equals Mark in the bits of Mask. The zero value chooses all.
type Filter struct{ Mark, Mask uint32 }

// Errors that a caller can act on; errors.Is finds them.
var (
	ErrExists      = errors.New("the connection is tracked already")
	ErrNoEntry     = errors.New("no such connection is tracked")
	ErrFull        = errors.New("the table of tracked connections is full: raise the sysctl net.netfilter.nf_conntrack_max")
	ErrPermission  = errors.New("no permission: the process needs the capability NET_ADMIN in this network namespace")
	ErrUnsupported = errors.New("the kernel does not offer its table of tracked connections: load the module nf_conntrack_netlink")
)

// Error is a failed operation on an entry or on the table.
type Error struct {
	Op   string // such as "insert" or "read"
	Flow string // the original direction; "": the whole table
	Err  error
}

func (e *Error) Error() string {
	if e.Flow == "" {
		return e.Op + " tracked connections: " + e.Err.Error()
	}
	return e.Op + " the tracked connection of " + e.Flow + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

var meanings = map[int]error{
	int(unix.EEXIST): ErrExists, int(unix.ENOENT): ErrNoEntry, int(unix.ENOMEM): ErrFull, int(unix.EPERM): ErrPermission, int(unix.EOPNOTSUPP): ErrUnsupported,
}

// failed returns the error of an operation; nil if err is nil.
func failed(op string, t *Tuple, err error) error {
	if err == nil {
		return nil
	}
	if refused, ok := errors.AsType[*nfnl.Refused](err); ok && meanings[refused.Code] != nil {
		err = fmt.Errorf("%w (%w)", meanings[refused.Code], refused)
	}
	e := &Error{Op: op, Err: err}
	if t != nil {
		e.Flow = t.String()
	}
	return e
}
