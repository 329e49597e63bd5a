package hostile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
)

// Fields of the header in front of a raw packet (PACKET_VNET_HDR, packet(7); virtio 1.2, 5.1.6).
const (
	offloadHeader   = 10
	needsChecksum   = 1
	segmentTCP4     = 1
	segmentUDP      = 3 // into fragments
	segmentTCP6     = 4
	segmentDatagram = 5 // into datagrams
)

// Commands of SIOCETHTOOL that switch what a device does for its packets.
const (
	setTxChecksums  = 0x17
	setSegmentation = 0x1f // of TCP
)

// unaided has the kernel, and no device, segment and complete what the node sends from an interface.
func unaided(t *testing.T, h *lab.Host, iface string) {
	t.Helper()
	for _, command := range []uint32{setSegmentation, setTxChecksums} {
		value := &struct{ command, data uint32 }{command, 0}
		request := struct {
			name  [unix.IFNAMSIZ]byte
			value unsafe.Pointer
			_     [16]byte
		}{value: unsafe.Pointer(value)}
		copy(request.name[:], iface)
		err := h.Do(func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return os.NewSyscallError("socket", err)
			}
			defer unix.Close(fd)
			if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
				return os.NewSyscallError("ioctl SIOCETHTOOL", errno)
			}
			return nil
		})
		if err != nil {
			t.Fatal(fmt.Errorf("switch off offload %#x of %s of %s: %w", command, iface, h.Name(), err))
		}
	}
}

// offloaded is a random frame behind a header that asks for a checksum, for segmentation, or for both.
func (r *crafter) offloaded() []byte {
	p := r.packet()
	if r.oneIn(2) {
		p = r.ofLiveFlow()
	}
	p.Payload = bytes.Repeat(r.mark("to be segmented or completed").bytes(), 1+r.IntN(60))
	p.Fragmented = r.oneIn(8)
	start, next := ipv4Transport, 14+9 // where the transport begins, and the byte that names it
	if p.Src.Is6() {
		start, next = ipv6Transport, 14+6
		if r.oneIn(4) {
			p.Extensions = []testutil.Extension{{Header: pick[uint8](r, 0, 60, 43, 51), Body: make([]byte, 6+8*r.IntN(2))}}
		}
	} else if r.oneIn(4) {
		p.Options = bytes.Repeat([]byte{1}, 4*(1+r.IntN(10)))
	}
	frame := p.Bytes()
	offset := map[byte]int{unix.IPPROTO_TCP: 16, unix.IPPROTO_UDP: 6, unix.IPPROTO_SCTP: 8}[frame[next]]
	length := pick(r, 0, start, start+8, start+20)
	if r.oneIn(3) {
		start = r.IntN(start + 30)
	}
	if r.oneIn(3) {
		offset = r.IntN(40)
	}
	b := []byte{pick[byte](r, 0, needsChecksum, needsChecksum), pick[byte](r, 0, segmentTCP4, segmentTCP6, segmentUDP, segmentDatagram, segmentDatagram)}
	for _, v := range []int{length, 1 + r.IntN(200), start, offset} {
		b = binary.NativeEndian.AppendUint16(b, uint16(v))
	}
	return append(b, frame...)
}

// offload sends n such frames, and returns how many of them the pod's kernel did not refuse.
func (f *fuzzing) offload(r *crafter, n int) (taken int, err error) {
	sender, err := traffic.OpenFrameSender(r.pod.Host, "eth0")
	if err != nil {
		return 0, err
	}
	defer sender.Close()
	if err := sender.Offload(); err != nil {
		return 0, err
	}
	for range n {
		b := r.offloaded()
		f.judge.sent(b[offloadHeader:])
		err := sender.Send([][]byte{b})
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOMEM) { // the header contradicts the frame
			continue
		}
		if err != nil {
			return taken, err
		}
		taken++
	}
	return taken, nil
}

// A pod with a raw socket has the node make segments of its packets and fill in their checksums, which is done behind all hooks. What
// leaves the nodes is what policy allows. MARGAY_E2E_FUZZ_SEED chooses other packets.
func TestSegmentsThatTheNodeMakesAreAllowed(t *testing.T) {
	testcluster.NeedsBPF(t, "the iptables dataplane does not see where a checksum goes: docs/security.md says so")
	seed := testutil.Number(t, "MARGAY_E2E_FUZZ_SEED", 1)
	f := newFuzzing(t, "Accept", seed)
	for _, n := range []*lab.Node{f.n1, f.n2} {
		unaided(t, n.Host, "eth0")
	}
	for _, r := range f.crafters {
		taken, err := f.offload(r, 20000)
		if err != nil {
			t.Fatal(err)
		}
		if taken < 2000 {
			t.Errorf("%s: the kernel took %d packets of 20,000", r.pod.Name(), taken)
		}
	}
	f.arriveHonestly()
	f.report()
}
