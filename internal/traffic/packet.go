package traffic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/lab"
)

const maxFrames = 4096 // a capture keeps the latest so many

// Capture records the frames that pass an interface, both ways, from the moment it was opened. It sees what arrives
// before TC and XDP-generic programs drop it, and what leaves only after TC egress let it go. Checksums of frames that
// local sockets sent may be unfinished.
type Capture struct {
	host *lab.Host
	file *os.File
	done chan struct{}

	mu      sync.Mutex
	frames  [][]byte
	total   uint64
	changed chan struct{} // closed and replaced at each frame
}

// OpenCapture starts recording on an interface of the host. The caller closes it.
func OpenCapture(h *lab.Host, iface string) (*Capture, error) {
	f, err := packetSocket(h, iface, unix.ETH_P_ALL)
	if err != nil {
		return nil, err
	}
	c := &Capture{host: h, file: f, done: make(chan struct{}), changed: make(chan struct{})}
	go c.record()
	if err := h.Adopt(c); err != nil {
		return nil, err
	}
	return c, nil
}

// packetSocket makes a socket that is bound to the interface and receives the given EtherType, or nothing if it is 0.
func packetSocket(h *lab.Host, iface string, etherType uint16) (*os.File, error) {
	link, err := h.Netlink().LinkByName(iface)
	if err != nil {
		return nil, fmt.Errorf("find interface %s of %s: %w", iface, h.Name(), err)
	}
	var fd int
	err = h.Do(func() (err error) {
		// Protocol 0: nothing arrives between socket and bind, when it would come from every interface.
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		return os.NewSyscallError("socket", err)
	})
	if err != nil {
		return nil, fmt.Errorf("open packet socket on %s of %s: %w", iface, h.Name(), err)
	}
	f := os.NewFile(uintptr(fd), "packet "+iface)
	to := &unix.SockaddrLinklayer{Protocol: bigEndian(etherType), Ifindex: link.Attrs().Index}
	if err := unix.Bind(fd, to); err != nil {
		return nil, errors.Join(fmt.Errorf("bind packet socket to %s of %s: %w", iface, h.Name(), err), f.Close())
	}
	return f, nil
}

func bigEndian(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

func (c *Capture) record() {
	defer close(c.done)
	b := make([]byte, 1<<17)
	for {
		n, err := c.file.Read(b)
		if errors.Is(err, os.ErrClosed) || errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			if errors.Is(err, unix.ENETDOWN) {
				continue // the interface went down; it may come up again
			}
			return
		}
		c.mu.Lock()
		if len(c.frames) == maxFrames {
			c.frames = slices.Delete(c.frames, 0, maxFrames/2)
		}
		c.frames = append(c.frames, slices.Clone(b[:n]))
		c.total++
		close(c.changed)
		c.changed = make(chan struct{})
		c.mu.Unlock()
	}
}

// Frames returns the frames recorded so far, oldest first; at most the latest 4096. They must not be changed.
func (c *Capture) Frames() [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.frames)
}

// Total is how many frames passed, kept or not.
func (c *Capture) Total() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

// Wait returns the first recorded frame that match accepts, waiting for one until ctx ends.
func (c *Capture) Wait(ctx context.Context, match func(frame []byte) bool) ([]byte, error) {
	for {
		c.mu.Lock()
		frames, changed := slices.Clone(c.frames), c.changed
		c.mu.Unlock()
		if i := slices.IndexFunc(frames, match); i >= 0 {
			return frames[i], nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("no such frame among %d captured in %s: %w", len(frames), c.host.Name(), ctx.Err())
		case <-c.done:
			return nil, fmt.Errorf("no such frame captured in %s: %w", c.host.Name(), os.ErrClosed)
		}
	}
}

// Close ends the recording; recorded packets can still be read.
func (c *Capture) Close() error {
	c.host.Release(c)
	err := c.file.Close()
	<-c.done
	return err
}

// SendUnfinished is SendFrame for a frame whose checksum the last device on its way is to fill in: the sum of the bytes from start on,
// offset bytes behind that, both from the beginning of the frame (PACKET_VNET_HDR, packet(7); virtio 1.2, 5.1.6).
func SendUnfinished(h *lab.Host, iface string, frame []byte, start, offset uint16) error {
	const needsChecksum, noSegments = 1, 0
	header := []byte{needsChecksum, noSegments, 0, 0, 0, 0}
	header = binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint16(header, start), offset)
	s, err := OpenFrameSender(h, iface)
	if err != nil {
		return err
	}
	return errors.Join(s.Offload(), s.Send([][]byte{slices.Concat(header, frame)}), s.Close())
}

// SendIP sends packets, each from the IP header on, out of the pod's eth0 to its gateway, whatever their addresses:
// for spoofed, fragmented, malformed packets and protocols without sockets.
func SendIP(p *lab.Pod, packets ...[]byte) error {
	for _, packet := range packets {
		if len(packet) == 0 {
			return errors.New("send an empty packet")
		}
		etherType := uint16(unix.ETH_P_IP)
		if packet[0]>>4 == 6 {
			etherType = unix.ETH_P_IPV6
		}
		frame := slices.Concat(lab.HostMAC, p.MAC(), binary.BigEndian.AppendUint16(nil, etherType), packet)
		if err := SendFrame(p.Host, "eth0", frame); err != nil {
			return err
		}
	}
	return nil
}
