package hostile

import (
	"bytes"
	"context"
	"encoding/binary"
	"sync"

	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
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

// await waits until one of the witnesses has seen the token or ctx ends, and returns the witness; nil: none has, and the token had not
// arrived at any of them by then.
func (k *tokens) await(ctx context.Context, of token, at []*witness) *witness {
	for {
		k.mu.Lock()
		arrived := k.arrived
		k.mu.Unlock()
		late := ctx.Err() != nil
		for _, w := range at {
			if late && w.tap != nil {
				w.tap.CatchUp() // this process may have got no CPU since the packet arrived
			}
			if w.saw(of) != nil {
				return w
			}
		}
		if late {
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
	tap    *traffic.Tap // nil: it has none

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
	tap, err := traffic.OpenTap(h, "eth0", func(frame []byte, forHost bool) {
		if forHost || inPod {
			w.note(frame)
		}
	})
	if err != nil {
		s.T.Fatal(err)
	}
	w.tap = tap
	s.T.Cleanup(func() {
		if n := tap.Lost(); n > 0 {
			s.T.Errorf("the witness at %s missed %d frames", h.Name(), n)
		}
		tap.Close() // fails only if the lab has closed it
	})
	return w
}

// watchLocal sees what is delivered to a node's own sockets: what it forwards, and what its netfilter hooks drop, is not
// there.
func (s *scene) watchLocal(n *lab.Node) *witness {
	s.T.Helper()
	w := s.newWitness(n.Name())
	s.listen(n, w.note)
	return w
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
