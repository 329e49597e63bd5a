//go:build linux

package traffic

import (
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// patience bounds every wait of a socket, so that a lost packet ends a run instead of hanging it.
const patience = 2 * time.Second

// sockaddr is struct sockaddr_in.
type sockaddr struct {
	family uint16
	port   [2]byte
	addr   [4]byte
	zero   [8]byte
}

func newSockaddr(a netip.AddrPort) *sockaddr {
	return &sockaddr{family: unix.AF_INET, port: [2]byte{byte(a.Port() >> 8), byte(a.Port())}, addr: a.Addr().As4()}
}

// The calls below wait in the kernel without telling Go's scheduler, which would add its own work to the measurement.
// Garbage collection must be off meanwhile.

func call(trap, a, b, c uintptr) (int, error) {
	var interrupted time.Time
	for {
		n, _, errno := unix.RawSyscall(trap, a, b, c)
		if errno == unix.EINTR {
			// Go's scheduler sends signals to a thread that is away for long, and each begins the wait anew.
			if interrupted.IsZero() {
				interrupted = time.Now()
			}
			if time.Since(interrupted) > patience {
				return 0, unix.ETIMEDOUT
			}
			continue
		}
		if errno != 0 {
			return 0, errno
		}
		return int(n), nil
	}
}

func read(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := call(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		if n == 0 {
			return fmt.Errorf("receive: connection closed")
		}
		b = b[n:]
	}
	return nil
}

func write(fd int, b []byte) error {
	n, err := call(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	if err == nil && n != len(b) {
		err = fmt.Errorf("%d of %d bytes", n, len(b))
	}
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

func connect(fd int, to *sockaddr) error {
	if _, err := call(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(to)), unsafe.Sizeof(*to)); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return nil
}

func accept(fd int) (int, error) {
	n, err := call(unix.SYS_ACCEPT, uintptr(fd), 0, 0)
	if err != nil {
		return 0, fmt.Errorf("accept: %w", err)
	}
	return n, nil
}

func socket(kind int) (int, error) {
	fd, err := call(unix.SYS_SOCKET, unix.AF_INET, uintptr(kind|unix.SOCK_CLOEXEC), 0)
	if err != nil {
		return 0, fmt.Errorf("socket: %w", err)
	}
	return fd, nil
}

func closeFD(fd int) error {
	_, err := call(unix.SYS_CLOSE, uintptr(fd), 0, 0)
	return err
}

// open makes a socket bound to an address, with bounded waits.
func open(kind int, local netip.AddrPort) (int, error) {
	fd, err := socket(kind)
	if err != nil {
		return 0, err
	}
	wait := unix.NsecToTimeval(int64(patience))
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &wait); err != nil {
			return 0, fmt.Errorf("bound waits of a socket: %w", err)
		}
	}
	if kind == unix.SOCK_STREAM {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return 0, fmt.Errorf("set TCP_NODELAY: %w", err)
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: int(local.Port()), Addr: local.Addr().As4()}); err != nil {
		return 0, fmt.Errorf("bind to %s: %w", local, err)
	}
	return fd, nil
}
