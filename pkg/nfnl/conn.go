// Package nfnl exchanges netlink messages with the netfilter subsystems of the kernel: ipset, conntrack, nflog, nftables. It handles the
// framing of messages and attributes, acknowledgements and dumps, but not the meaning of attributes in a subsystem.
package nfnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	headerLen   = unix.SizeofNlMsghdr + 4 // netlink's header and nfgenmsg
	receiveLen  = 64 << 10                // the kernel fills at most 32 KiB of a dump at a time; an error of ipset repeats the request
	answerLimit = 30 * time.Second        // the kernel answers during the call of send, unless it loads a module first
)

// ErrInterrupted means that the kernel's table changed under a dump, which may have missed entries or repeated them.
var ErrInterrupted = errors.New("the kernel's table changed while it was read")

// ErrOverrun means that the kernel dropped messages because the socket's buffer was full (ENOBUFS).
var ErrOverrun = errors.New("the kernel dropped netlink messages: the socket's receive buffer was full")

// Refused is a request that the kernel did not accept.
type Refused struct {
	Code    int    // a number of errno, or from 4096 on one of the subsystem's own
	Request []byte // the attributes of the request as the kernel returned them; some subsystems write into them
}

func (r *Refused) Error() string {
	if r.Code >= 4096 {
		return fmt.Sprintf("the kernel answered with code %d of the subsystem", r.Code)
	}
	return fmt.Sprintf("the kernel answered: %v", syscall.Errno(r.Code))
}

// Is makes errors.Is find the number of errno.
func (r *Refused) Is(target error) bool {
	errno, ok := target.(syscall.Errno)
	return ok && int(errno) == r.Code
}

// Request is one message to a subsystem.
type Request struct {
	Subsystem, Command uint8
	Family             uint8
	Flags              uint16 // beyond NLM_F_REQUEST and those that the method adds
	Resource           uint16 // res_id: the group of nflog
	Attributes         []byte // made by an Encoder
}

// Message is one message of a subsystem. Its slices are valid until the function it was passed to returns.
type Message struct {
	Subsystem, Command uint8
	Family             uint8
	Resource           uint16
	Attributes         []byte
}

// Conn is a socket to the netfilter subsystems of one network namespace. It is safe for concurrent use; requests wait
// for each other.
type Conn struct {
	mu       sync.Mutex
	file     *os.File
	raw      syscall.RawConn
	sequence uint32
	buffer   []byte
}

// Open opens a socket in the network namespace of the calling thread. It stays with that namespace.
func Open() (*Conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket to netfilter: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, errors.Join(fmt.Errorf("bind a netlink socket to netfilter: %w", err), unix.Close(fd))
	}
	c := &Conn{file: os.NewFile(uintptr(fd), "nfnetlink"), buffer: make([]byte, receiveLen)}
	if c.raw, err = c.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, c.file.Close())
	}
	return c, nil
}

// Close makes calls that are under way fail, and releases the socket.
func (c *Conn) Close() error { return c.file.Close() }

// SetReceiveBuffer asks for a receive buffer of so many bytes. Without the capability to exceed the node's limit
// (net.core.rmem_max) the buffer gets the size of that limit.
func (c *Conn) SetReceiveBuffer(bytes int) error {
	var err error
	control := c.raw.Control(func(fd uintptr) {
		if err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bytes); err != nil {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, bytes)
		}
	})
	return errors.Join(control, err)
}

// encode appends the request's message to b.
func (r Request) encode(b []byte, flags uint16, sequence uint32) []byte {
	b = binary.NativeEndian.AppendUint32(b, uint32(headerLen+len(r.Attributes)))
	b = binary.NativeEndian.AppendUint16(b, uint16(r.Subsystem)<<8|uint16(r.Command))
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|r.Flags|flags)
	b = binary.NativeEndian.AppendUint32(b, sequence)
	b = binary.NativeEndian.AppendUint32(b, 0) // the kernel fills in the port
	b = append(b, r.Family, unix.NFNETLINK_V0) // nfgenmsg
	b = binary.BigEndian.AppendUint16(b, r.Resource)
	return append(b, r.Attributes...)
}

func (c *Conn) send(b []byte) error {
	if err := c.file.SetWriteDeadline(time.Now().Add(answerLimit)); err != nil {
		return err
	}
	var err error
	waited := c.raw.Write(func(fd uintptr) bool {
		err = unix.Sendto(int(fd), b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		return err != unix.EAGAIN && err != unix.EINTR
	})
	if err = errors.Join(waited, err); err != nil {
		return fmt.Errorf("send to the kernel's netfilter: %w", err)
	}
	return nil
}

// receive reads one datagram of the kernel. It ignores datagrams of other senders.
func (c *Conn) receive(deadline time.Time) ([]byte, error) {
	if err := c.file.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	for {
		var n, flags int
		var from unix.Sockaddr
		var err error
		waited := c.raw.Read(func(fd uintptr) bool {
			n, _, flags, from, err = unix.Recvmsg(int(fd), c.buffer, nil, 0)
			return err != unix.EAGAIN && err != unix.EINTR
		})
		if waited != nil {
			return nil, fmt.Errorf("receive from the kernel's netfilter: %w", waited)
		}
		if err == unix.ENOBUFS {
			return nil, ErrOverrun
		}
		if err != nil {
			return nil, fmt.Errorf("receive from the kernel's netfilter: %w", err)
		}
		if flags&unix.MSG_TRUNC != 0 {
			return nil, fmt.Errorf("receive from the kernel's netfilter: a message is larger than %d bytes", len(c.buffer))
		}
		if kernel, ok := from.(*unix.SockaddrNetlink); ok && kernel.Pid == 0 {
			return c.buffer[:n], nil
		}
	}
}
