package traffic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/lab"
)

// Sizes of a ring, and of the header in front of each frame in it (struct tpacket2_hdr, packet(7)).
const (
	ringBlock  = 1 << 16
	ringFrame  = 1 << 11
	ringHeader = 32
)

// SendByRing sends frames out of an interface from memory that this process and the kernel share (PACKET_TX_RING, packet(7)). In the
// kernel's buffers all but the Ethernet header of such a frame is in pages.
func SendByRing(h *lab.Host, iface string, frames [][]byte) error {
	f, err := packetSocket(h, iface, 0)
	if err != nil {
		return err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return errors.Join(fmt.Errorf("send by a ring from %s: %w", h.Name(), err), f.Close())
	}
	var sent error
	err = raw.Control(func(fd uintptr) { sent = sendByRing(int(fd), frames) })
	if err = errors.Join(err, sent, f.Close()); err != nil {
		return fmt.Errorf("send by a ring from %s: %w", h.Name(), err)
	}
	return nil
}

func sendByRing(fd int, frames [][]byte) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2); err != nil {
		return os.NewSyscallError("setsockopt PACKET_VERSION", err)
	}
	blocks := (len(frames)*ringFrame + ringBlock - 1) / ringBlock
	size := &unix.TpacketReq{Block_size: ringBlock, Block_nr: uint32(blocks), Frame_size: ringFrame, Frame_nr: uint32(blocks * ringBlock / ringFrame)}
	if err := unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, unix.PACKET_TX_RING, size); err != nil {
		return os.NewSyscallError("setsockopt PACKET_TX_RING", err)
	}
	ring, err := unix.Mmap(fd, 0, blocks*ringBlock, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	for i, frame := range frames {
		slot := ring[i*ringFrame : (i+1)*ringFrame]
		if copy(slot[ringHeader:], frame) < len(frame) {
			return errors.Join(fmt.Errorf("a frame of %d bytes does not fit", len(frame)), unix.Munmap(ring))
		}
		binary.NativeEndian.PutUint32(slot[4:], uint32(len(frame)))
		binary.NativeEndian.PutUint32(slot, unix.TP_STATUS_SEND_REQUEST)
	}
	// It returns when the kernel has let go of all frames.
	err = unix.Sendto(fd, nil, 0, nil)
	return errors.Join(os.NewSyscallError("sendto", err), unix.Munmap(ring))
}
