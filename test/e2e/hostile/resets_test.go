package hostile

import (
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
)

// secret is in the numbers of segments, and so in those of resets.
const secret = 0x5ec0_0000

// The numbers in the resets of a revoked connection are the sender's, so resets could carry data to a pod that policy denies. One packet
// in a second becomes one, which comes to 8 bytes. Of a connection whose beginning it has not seen, the kernel's conntrack accepts any number.
func TestResetsCarryLittle(t *testing.T) {
	s := newScene(t)
	muteStack(t, s.m)
	for _, to := range []*lab.Pod{s.b, s.c} {
		muteStack(t, to)
		t.Run(to.Name(), func(t *testing.T) { s.resetsCarryLittle(t, to, 1000, true) })
		t.Run(to.Name()+", in mid-flow", func(t *testing.T) { s.resetsCarryLittle(t, to, 1001, false) })
	}
}

func (s *scene) resetsCarryLittle(t *testing.T, to *lab.Pod, port uint16, begins bool) {
	at, atM := s.watch(to.Host), s.watch(s.m.Host)
	segment := func(from, to *lab.Pod, sport, dport uint16, flags uint8, seq, ack uint32) testutil.Packet {
		return testutil.Packet{Src: from.Addr4(), Dst: to.Addr4(), L4: testutil.TCP{SrcPort: sport, DstPort: dport, Flags: flags, Seq: seq, Ack: ack}}
	}
	allowed := func(what string, from *lab.Pod, p testutil.Packet, w *witness) {
		s.play(t, []attack{{what: what, from: from, frames: bearing(from, p), want: true}}, w)
	}
	if begins {
		allowed("SYN", s.m, segment(s.m, to, port, 80, testutil.SYN, 0, 0), at)
		allowed("SYN-ACK", to, segment(to, s.m, 80, port, testutil.SYN|testutil.ACK, 0, 1), atM)
	}
	allowed("ACK", s.m, segment(s.m, to, port, 80, testutil.ACK, 1, 1), at)
	allowed("the answer", to, segment(to, s.m, 80, port, testutil.ACK, 1, 1), atM)
	s.Policy("evil/m", `{podSelector: {matchLabels: {app: m}}, policyTypes: [Egress]}`)
	s.AwaitPolicies(s.m, 0, 1)

	got := s.resetsAt(t, to.Host)
	begin := time.Now()
	tick := time.NewTicker(2 * time.Millisecond) // so that some seconds pass
	defer tick.Stop()
	for i := range uint32(1000) {
		<-tick.C
		send(t, s.m, frame(s.m, segment(s.m, to, port, 80, testutil.ACK, secret|2*i, secret|2*i)))
	}
	pause(never)
	n := got()
	// The clock of resets has steps of 16 jiffies, so a second may be a bit shorter. However slow this machine is, no more may arrive.
	if most := int(time.Since(begin)/(900*time.Millisecond)) + 1; n > most {
		t.Errorf("%d numbers arrived, want at most %d", n, most)
	}
	s.Remove("policy-evil.m")
	s.AwaitPolicies(s.m, 0, 0)
}

// resetsAt counts the different secret numbers in resets that arrive at a host. A number and the next one count once: a packet without data
// may be a keep-alive, which repeats the number before the one that its receiver expects.
func (s *scene) resetsAt(t *testing.T, h *lab.Host) (got func() int) {
	t.Helper()
	var mu sync.Mutex
	numbers := map[uint32]bool{}
	_, err := traffic.OpenTap(h, "eth0", func(f []byte, _ bool) {
		if len(f) < 54 || f[12] != 8 || f[23] != 6 || f[47]&testutil.RST == 0 {
			return
		}
		if n := binary.BigEndian.Uint32(f[38:]); n&0xffff_0000 == secret {
			mu.Lock()
			defer mu.Unlock()
			numbers[n>>1] = true
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(numbers)
	}
}
