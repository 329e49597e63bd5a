package lab

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// datagramRoom is how many bytes of datagrams wait at a socket, with what the kernel adds to each: several seconds of a flow with one in a
// millisecond. The kernel's default is a quarter of a second of it.
const datagramRoom = 8 << 20

// MakeRoom enlarges the receive buffer of a datagram socket. The kernel drops datagrams when the buffer is full, for example while the
// process gets no CPU, and tests would count those as lost on the way. It needs CAP_NET_ADMIN, as a lab does.
func MakeRoom(c syscall.Conn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("make room for datagrams: %w", err)
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, datagramRoom)
	})
	return errors.Join(err, os.NewSyscallError("setsockopt SO_RCVBUFFORCE", set))
}
