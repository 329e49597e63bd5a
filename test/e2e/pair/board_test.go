package pair

import (
	"bytes"
	"encoding/binary"
	"sync"
	"time"
)

// A token is 12 bytes in the payload of a packet: a magic number and a count.
const (
	tokenMagic = "pair"
	tokenSize  = len(tokenMagic) + 8
)

type token uint64

func (k token) bytes() []byte { return binary.BigEndian.AppendUint64([]byte(tokenMagic), uint64(k)) }

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

// arrival is what became of a token on one side.
type arrival struct {
	places  uint8 // where it arrived, a bit each
	packet  []byte
	invalid bool // conntrack found its packet invalid
}

func (a arrival) at(p place) bool { return p >= 0 && a.places&(1<<p) != 0 }

// board has the arrivals of one side.
type board struct {
	mu   sync.Mutex
	seen map[token]arrival
	last time.Time // when anything arrived
}

func newBoard() *board { return &board{seen: map[token]arrival{}} }

func (b *board) note(packet []byte, note func(*arrival)) {
	found := tokensIn(packet)
	if len(found) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = time.Now()
	for _, k := range found {
		a := b.seen[k]
		note(&a)
		b.seen[k] = a
	}
}

func (b *board) arrived(at place, packet []byte) {
	if ofTheNode(packet) {
		return
	}
	b.note(packet, func(a *arrival) {
		a.places |= 1 << at
		if a.packet == nil {
			a.packet = bytes.Clone(packet)
		}
	})
}

func (b *board) invalid(packet []byte) { b.note(packet, func(a *arrival) { a.invalid = true }) }

func (b *board) of(k token) arrival {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen[k]
}

func (b *board) quietSince() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

// ofTheNode reports whether a packet is an ICMP redirect, or says that fragments were not completed in time. The node sends
// them to the source of a packet: the one if it goes back where it came from, before its firewall has seen it, the other
// after half a minute.
func ofTheNode(packet []byte) bool {
	if packet[0]>>4 == 4 {
		header := int(packet[0]&15) * 4
		return packet[9] == 1 && len(packet) > header && (packet[header] == 5 || packet[header] == 11)
	}
	return packet[6] == 58 && len(packet) > 40 && (packet[40] == 137 || packet[40] == 3 && packet[41] == 1)
}
