package traffic

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/lab"
)

// framesAtOnce is how many frames one system call takes.
const framesAtOnce = 64

// FrameSender sends Ethernet frames out of one interface, many with one system call: for floods.
type FrameSender struct {
	host *lab.Host
	file *os.File
	kept *outlet // among the keptSenders; nil: it is not
}

// OpenFrameSender opens an interface of the host for sending. The caller closes it.
func OpenFrameSender(h *lab.Host, iface string) (*FrameSender, error) {
	f, err := packetSocket(h, iface, 0)
	if err != nil {
		return nil, err
	}
	s := &FrameSender{host: h, file: f}
	if err := h.Adopt(s); err != nil {
		return nil, err
	}
	return s, nil
}

// Close implements io.Closer.
func (s *FrameSender) Close() error {
	s.host.Release(s)
	if s.kept != nil {
		keptSenders.forget(*s.kept, s)
	}
	return s.file.Close()
}

// SendFrame sends an Ethernet frame, as it is, out of an interface of the host. It may be called from several goroutines.
func SendFrame(h *lab.Host, iface string, frame []byte) error {
	for again := false; ; again = true {
		s, err := keptSenders.get(outlet{h, iface})
		if err != nil {
			return err
		}
		err = errors.Join(s.file.SetWriteDeadline(time.Now().Add(time.Minute)), s.Send([][]byte{frame}))
		if err == nil || again {
			return err
		}
		_ = s.Close() // the interface may be another one by now
	}
}

// outlet is an interface of a host.
type outlet struct {
	host  *lab.Host
	iface string
}

// senders are those that SendFrame leaves open until their host is closed: it takes the kernel some 10 ms to close one, since it waits until
// no CPU uses the socket (synchronize_net).
type senders struct {
	mu sync.Mutex
	by map[outlet]*FrameSender
}

var keptSenders = senders{by: map[outlet]*FrameSender{}}

func (k *senders) get(to outlet) (*FrameSender, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.by[to]; s != nil {
		return s, nil
	}
	s, err := OpenFrameSender(to.host, to.iface)
	if err != nil {
		return nil, err
	}
	s.kept, k.by[to] = &to, s
	return s, nil
}

func (k *senders) forget(to outlet, s *FrameSender) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.by[to] == s {
		delete(k.by, to)
	}
}

// mmsghdr is struct mmsghdr of recvmmsg(2) and sendmmsg(2).
type mmsghdr struct {
	header unix.Msghdr
	length uint32
	_      [4]byte
}

// Send sends all frames in order, waiting where the interface's queue is full.
func (s *FrameSender) Send(frames [][]byte) error {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("send frames from %s: %w", s.host.Name(), err)
	}
	for len(frames) > 0 {
		n := 0
		var sendErr error
		err := raw.Write(func(fd uintptr) bool {
			n, sendErr = sendSome(fd, frames[:min(len(frames), framesAtOnce)])
			return !errors.Is(sendErr, unix.EAGAIN) && !errors.Is(sendErr, unix.ENOBUFS)
		})
		if err = errors.Join(err, sendErr); err != nil {
			return fmt.Errorf("send frames from %s: %w", s.host.Name(), err)
		}
		frames = frames[n:]
	}
	return nil
}

// sendSome returns how many of the frames were sent: at least one, or an error.
func sendSome(fd uintptr, frames [][]byte) (int, error) {
	var messages [framesAtOnce]mmsghdr
	var parts [framesAtOnce]unix.Iovec
	for i, f := range frames {
		parts[i].Base = &f[0]
		parts[i].SetLen(len(f))
		messages[i].header.Iov = &parts[i]
		messages[i].header.SetIovlen(1)
	}
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&messages[0])), uintptr(len(frames)), 0, 0, 0)
	runtime.KeepAlive(frames)
	if errno != 0 {
		return 0, os.NewSyscallError("sendmmsg", errno)
	}
	return int(n), nil
}

// Offload has every frame begin with a struct virtio_net_hdr, which asks the devices on its way to complete and to segment it.
func (s *FrameSender) Offload() error {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1) })
	return errors.Join(err, os.NewSyscallError("setsockopt PACKET_VNET_HDR", set))
}
