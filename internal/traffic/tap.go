package traffic

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/lab"
)

// tapBuffer is how many bytes of frames wait for a tap that is slow.
const tapBuffer = 32 << 20

// Tap hands over every frame that arrives at an interface, before anything in that host may drop it, and none that the
// host sends. Unlike a Capture it keeps nothing, so it is for floods.
type Tap struct {
	host *lab.Host
	file *os.File
	done chan struct{}

	catching sync.Mutex // held by CatchUp

	mu       sync.Mutex
	lost     uint64
	caughtUp chan struct{} // nil unless CatchUp waits
}

// OpenTap begins to call arrived, from one goroutine, for each frame; forHost tells whether it is addressed to the host, to
// all hosts or to a group, rather than to another host on the segment. The frame is the callee's until it returns. The
// caller closes the tap.
func OpenTap(h *lab.Host, iface string, arrived func(frame []byte, forHost bool)) (*Tap, error) {
	ignoreOutgoing := func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1) }
	return openTap(h, iface, ignoreOutgoing, func(frame []byte, kind uint8) { arrived(frame, kind != unix.PACKET_OTHERHOST) })
}

// openTap is OpenTap with the kernel's kind of each frame. The tap begins after setup, which may exclude frames.
func openTap(h *lab.Host, iface string, setup func(fd int) error, seen func(frame []byte, kind uint8)) (*Tap, error) {
	f, err := packetSocket(h, iface, 0)
	if err != nil {
		return nil, err
	}
	link, err := h.Netlink().LinkByName(iface)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("find interface %s of %s: %w", iface, h.Name(), err), f.Close())
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("tap %s of %s: %w", iface, h.Name(), err), f.Close())
	}
	var errs [3]error
	err = raw.Control(func(fd uintptr) {
		errs[0] = setup(int(fd))
		errs[1] = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, tapBuffer)
		errs[2] = unix.Bind(int(fd), &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ALL), Ifindex: link.Attrs().Index})
	})
	if err = errors.Join(err, errs[0], errs[1], errs[2]); err != nil {
		return nil, errors.Join(fmt.Errorf("tap %s of %s: %w", iface, h.Name(), err), f.Close())
	}
	t := &Tap{host: h, file: f, done: make(chan struct{})}
	go t.run(raw, seen)
	if err := h.Adopt(t); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Tap) run(raw syscall.RawConn, seen func([]byte, uint8)) {
	defer close(t.done)
	b := make([]byte, 1<<17)
	// one hands over a frame. It returns false if none waits.
	one := func(fd uintptr) bool {
		n, from, err := unix.Recvfrom(int(fd), b, 0)
		if err == nil {
			kind := uint8(unix.PACKET_HOST)
			if at, ok := from.(*unix.SockaddrLinklayer); ok {
				kind = at.Pkttype
			}
			seen(b[:n], kind)
		}
		// After another error the interface went down; it may come up again.
		return !errors.Is(err, unix.EAGAIN)
	}
	for {
		err := raw.Read(one)
		if err == nil {
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return // closed
		}
		err = raw.Control(func(fd uintptr) {
			for one(fd) {
			}
		})
		t.mu.Lock()
		err = errors.Join(err, t.file.SetReadDeadline(time.Time{}))
		close(t.caughtUp)
		t.caughtUp = nil
		t.mu.Unlock()
		if err != nil {
			return // closed
		}
	}
}

// CatchUp returns when all frames that have passed by now are handed over, or the tap is closed.
func (t *Tap) CatchUp() {
	t.catching.Lock()
	defer t.catching.Unlock()
	caughtUp := make(chan struct{})
	t.mu.Lock()
	t.caughtUp = caughtUp
	err := t.file.SetReadDeadline(time.Now()) // interrupts the reader, which drains the socket then
	t.mu.Unlock()
	if err != nil {
		return // closed
	}
	select {
	case <-caughtUp:
	case <-t.done:
	}
}

// Lost is how many frames arrived faster than they were handed over, and are missing.
func (t *Tap) Lost() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	raw, err := t.file.SyscallConn()
	if err != nil {
		return t.lost
	}
	_ = raw.Control(func(fd uintptr) { // fails only on a closed socket, whose count does not change
		if stats, err := unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
			t.lost += uint64(stats.Drops) // reading resets it
		}
	})
	return t.lost
}

// Close ends it; arrived is not called again.
func (t *Tap) Close() error {
	t.host.Release(t)
	err := t.file.Close()
	<-t.done
	return err
}
