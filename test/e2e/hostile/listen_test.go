package hostile

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

// localProtocols are those that listen receives: with sockets of their own, tunnels, and such as nobody speaks. AH is none
// of them: what is behind it is judged, and its raw socket does not say where that begins.
var localProtocols = []int{
	unix.IPPROTO_ICMP, unix.IPPROTO_IGMP, unix.IPPROTO_IPIP, unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_IPV6,
	unix.IPPROTO_GRE, unix.IPPROTO_ESP, unix.IPPROTO_ICMPV6, unix.IPPROTO_NONE, 89, 112,
	unix.IPPROTO_SCTP, unix.IPPROTO_UDPLITE, 253, 254,
}

// listen calls delivered for each packet that reaches a node's own sockets, of localProtocols, until the test ends. The
// packet begins with its IP header, of which for IPv6 only addresses, length and protocol are the sender's. Calls come
// from several goroutines.
func (s *scene) listen(n *lab.Node, delivered func(packet []byte)) {
	s.T.Helper()
	var running sync.WaitGroup
	s.T.Cleanup(running.Wait)
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		for _, protocol := range localProtocols {
			f, err := rawSocket(n.Host, family, protocol)
			if err != nil {
				s.T.Fatal(err)
			}
			s.T.Cleanup(func() { f.Close() }) // before the wait
			running.Add(1)
			go func() {
				defer running.Done()
				receive(f, func(payload []byte, src, dst netip.Addr) {
					if family == unix.AF_INET6 {
						payload = testutil.Packet{Src: src, Dst: dst, L4: testutil.Raw(protocol), Payload: payload}.IP()
					}
					delivered(payload)
				})
			}()
		}
	}
}

func rawSocket(h *lab.Host, family, protocol int) (*os.File, error) {
	var fd int
	err := h.Do(func() (err error) {
		fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol)
		return os.NewSyscallError("socket", err)
	})
	if err == nil {
		err = os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20))
	}
	if err == nil && family == unix.AF_INET6 {
		err = os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1))
	}
	if err != nil {
		return nil, fmt.Errorf("raw socket of protocol %d in %s: %w", protocol, h.Name(), err)
	}
	return os.NewFile(uintptr(fd), "raw"), nil
}

// receive reads until the socket is closed. The addresses are those of IPv6 packets; of IPv4 the header is in the payload.
func receive(f *os.File, packet func(payload []byte, src, dst netip.Addr)) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	b, control := make([]byte, 1<<16), make([]byte, 256)
	for {
		var n, m int
		var from unix.Sockaddr
		var recvErr error
		err := raw.Read(func(fd uintptr) bool {
			n, m, _, from, recvErr = unix.Recvmsg(int(fd), b, control, 0)
			return !errors.Is(recvErr, unix.EAGAIN) && !errors.Is(recvErr, unix.EINTR)
		})
		if err != nil {
			return
		}
		if recvErr != nil {
			continue // an ICMP error about an earlier answer of the kernel
		}
		var src, dst netip.Addr
		if a, ok := from.(*unix.SockaddrInet6); ok {
			src = netip.AddrFrom16(a.Addr)
		}
		messages, _ := unix.ParseSocketControlMessage(control[:m]) // whole: there is room
		for _, c := range messages {
			if c.Header.Level == unix.IPPROTO_IPV6 && c.Header.Type == unix.IPV6_PKTINFO && len(c.Data) >= 16 {
				dst = netip.AddrFrom16([16]byte(c.Data[:16]))
			}
		}
		packet(b[:n], src, dst)
	}
}
