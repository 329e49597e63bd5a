package traffic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/lab"
)

// RawReceiver receives the locally delivered packets of one IP protocol, whether the kernel knows the protocol or not.
// It does not see packets that are dropped on the way in, by a filter of the host for example.
type RawReceiver struct {
	host *lab.Host
	file *os.File
	done chan struct{}

	mu       sync.Mutex
	received [][]byte
	changed  chan struct{} // closed and replaced at each packet
}

// ReceiveRaw begins to receive packets of the protocol. The caller closes it.
func ReceiveRaw(h *lab.Host, protocol uint8, v6 bool) (*RawReceiver, error) {
	f, err := rawSocket(h, int(protocol), v6)
	if err != nil {
		return nil, err
	}
	r := &RawReceiver{host: h, file: f, done: make(chan struct{}), changed: make(chan struct{})}
	go r.receive()
	if err := h.Adopt(r); err != nil {
		return nil, err
	}
	return r, nil
}

func rawSocket(h *lab.Host, protocol int, v6 bool) (*os.File, error) {
	family := unix.AF_INET
	if v6 {
		family = unix.AF_INET6
	}
	var fd int
	err := h.Do(func() (err error) {
		fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol)
		return os.NewSyscallError("socket", err)
	})
	if err != nil {
		return nil, fmt.Errorf("open raw socket of protocol %d in %s: %w", protocol, h.Name(), err)
	}
	return os.NewFile(uintptr(fd), "raw"), nil
}

func (r *RawReceiver) receive() {
	defer close(r.done)
	b := make([]byte, 1<<16)
	for {
		n, err := r.file.Read(b)
		if err != nil {
			return
		}
		r.mu.Lock()
		if len(r.received) == maxFrames {
			r.received = r.received[maxFrames/2:]
		}
		r.received = append(r.received, bytes.Clone(b[:n]))
		close(r.changed)
		r.changed = make(chan struct{})
		r.mu.Unlock()
	}
}

// Wait waits until ctx ends for a packet that contains the token, of those that came since the receiver was opened.
func (r *RawReceiver) Wait(ctx context.Context, token []byte) error {
	for {
		r.mu.Lock()
		received, changed := r.received, r.changed
		r.mu.Unlock()
		for _, p := range received {
			if bytes.Contains(p, token) {
				return nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("no such packet among %d received by %s: %w", len(received), r.host.Name(), ctx.Err())
		case <-r.done:
			return fmt.Errorf("no such packet received by %s: %w", r.host.Name(), os.ErrClosed)
		}
	}
}

// Close ends the receiving.
func (r *RawReceiver) Close() error {
	r.host.Release(r)
	err := r.file.Close()
	<-r.done
	return err
}

// SendRaw sends a packet, from the IP header on, the way the host routes its destination.
func SendRaw(h *lab.Host, packet []byte, dst netip.Addr) error {
	f, err := rawSocket(h, unix.IPPROTO_RAW, dst.Is6())
	if err != nil {
		return err
	}
	raw, err := f.SyscallConn()
	if err == nil {
		var sendErr error
		err = raw.Control(func(fd uintptr) { sendErr = unix.Sendto(int(fd), packet, 0, sockaddr(dst)) })
		err = errors.Join(err, os.NewSyscallError("sendto", sendErr))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("send a packet of %d bytes from %s to %s: %w", len(packet), h.Name(), dst, err)
	}
	return nil
}
