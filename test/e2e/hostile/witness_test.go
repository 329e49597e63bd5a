package hostile

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/lab"
)

// A token is 16 bytes that a packet bears in its payload: the magic number and a count.
const (
	tokenMagic = "mgyevil!"
	tokenSize  = len(tokenMagic) + 8
)

type token uint64

// bytes are what the packet bears. A prefix or a part of them is no token.
func (k token) bytes() []byte { return binary.BigEndian.AppendUint64([]byte(tokenMagic), uint64(k)) }

// tokens gives out numbers, and tells when one has arrived somewhere.
type tokens struct {
	mu      sync.Mutex
	last    token
	arrived chan struct{} // closed and replaced with each packet that bears a token
}

func newTokens() *tokens { return &tokens{arrived: make(chan struct{})} }

func (k *tokens) next() token {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last++
	return k.last
}

// tell wakes those who wait for tokens.
func (k *tokens) tell() {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.arrived)
	k.arrived = make(chan struct{})
}

// await waits until one of the witnesses has seen the token or ctx ends, and returns the witness; nil: none has.
func (k *tokens) await(ctx context.Context, of token, at []*witness) *witness {
	for {
		k.mu.Lock()
		arrived := k.arrived
		k.mu.Unlock()
		for _, w := range at {
			if w.saw(of) != nil {
				return w
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
		}
	}
}

// tokensIn are the tokens that a packet bears anywhere.
func tokensIn(packet []byte) (found []token) {
	for {
		i := bytes.Index(packet, []byte(tokenMagic))
		if i < 0 || i+tokenSize > len(packet) {
			return found
		}
		found = append(found, token(binary.BigEndian.Uint64(packet[i+len(tokenMagic):])))
		packet = packet[i+tokenSize:]
	}
}

// witness remembers the tokens that arrived at a host.
type witness struct {
	name   string
	tokens *tokens

	mu   sync.Mutex
	seen map[token][]byte // the first packet that bore it
}

func (s *scene) newWitness(name string) *witness {
	return &witness{name: name, tokens: s.tokens, seen: map[token][]byte{}}
}

// watch sees every frame that arrives at eth0 of a pod or of the outside host, before its kernel may drop it. Frames that
// the segment floods, addressed to another machine, are none of the outside host's.
func (s *scene) watch(h *lab.Host) *witness {
	s.T.Helper()
	w := s.newWitness(h.Name())
	inPod := h != s.ext.Host && h != s.n1.Host && h != s.n2.Host
	tap, err := h.OpenTap("eth0", func(frame []byte, forHost bool) {
		if forHost || inPod {
			w.note(frame)
		}
	})
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() {
		if n := tap.Lost(); n > 0 {
			s.T.Errorf("the witness at %s missed %d frames", h.Name(), n)
		}
		tap.Close() // fails only if the lab has closed it
	})
	return w
}

// localProtocols are those that watchLocal receives: with sockets of their own, tunnels, and such as nobody speaks.
var localProtocols = []int{
	unix.IPPROTO_ICMP, unix.IPPROTO_IGMP, unix.IPPROTO_IPIP, unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_IPV6,
	unix.IPPROTO_GRE, unix.IPPROTO_ESP, unix.IPPROTO_AH, unix.IPPROTO_ICMPV6, unix.IPPROTO_NONE, 89, 112,
	unix.IPPROTO_SCTP, unix.IPPROTO_UDPLITE, 253, 254,
}

// watchLocal sees what is delivered to a node's own sockets, of localProtocols: what it forwards, and what its netfilter
// hooks drop, is not there.
func (s *scene) watchLocal(n *lab.Node) *witness {
	s.T.Helper()
	w := s.newWitness(n.Name())
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		for _, protocol := range localProtocols {
			f, err := rawSocket(n.Host, family, protocol)
			if err != nil {
				s.T.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				b := make([]byte, 1<<16)
				for {
					n, err := f.Read(b)
					if errors.Is(err, os.ErrClosed) {
						return
					}
					if err == nil { // otherwise an ICMP error about an earlier answer of the kernel
						w.note(b[:n])
					}
				}
			}()
			s.T.Cleanup(func() { f.Close(); <-done })
		}
	}
	return w
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
	if err != nil {
		return nil, fmt.Errorf("raw socket of protocol %d in %s: %w", protocol, h.Name(), err)
	}
	return os.NewFile(uintptr(fd), "raw"), nil
}

func (w *witness) note(packet []byte) {
	found := tokensIn(packet)
	if len(found) == 0 {
		return
	}
	w.mu.Lock()
	for _, k := range found {
		if _, known := w.seen[k]; !known {
			w.seen[k] = bytes.Clone(packet)
		}
	}
	w.mu.Unlock()
	w.tokens.tell()
}

// saw is the first packet that bore the token, from its Ethernet header on (from the IP header at a node); nil: none yet.
func (w *witness) saw(k token) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen[k]
}
