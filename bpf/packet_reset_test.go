package bpf_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// segment is what a TCP frame says, checksums checked.
type segment struct {
	src, dst   string
	seq, ack   uint32
	flags      uint8
	words, len int // of the TCP header; bytes from the IP header on
}

// parseSegment reads a TCP frame, which must be whole and have right checksums.
func parseSegment(t *testing.T, frame []byte) segment {
	t.Helper()
	ip := frame[14:]
	var s segment
	var at int
	pseudo := []byte{0, 6, 0, 0}
	if ip[0]>>4 == 4 {
		at = int(ip[0]&15) * 4
		if sum := checksum16(ip[:at]); sum != 0xffff {
			t.Errorf("IP header sums up to %#x", sum)
		}
		if n := int(binary.BigEndian.Uint16(ip[2:])); n != len(ip) {
			t.Errorf("IP total length %d of %d bytes", n, len(ip))
		}
		s.src, s.dst = fmt.Sprint(ip[12:16]), fmt.Sprint(ip[16:20])
		pseudo = append(pseudo, ip[12:20]...)
	} else {
		next, n := ip[6], 40
		for next != 6 {
			next, n = ip[n], n+(int(ip[n+1])+1)*8
		}
		at = n
		if n := int(binary.BigEndian.Uint16(ip[4:])); n != len(ip)-40 {
			t.Errorf("IPv6 payload length %d of %d bytes", n, len(ip)-40)
		}
		s.src, s.dst = fmt.Sprint(ip[8:24]), fmt.Sprint(ip[24:40])
		pseudo = append(pseudo, ip[8:40]...)
	}
	tcp := ip[at:]
	binary.BigEndian.PutUint16(pseudo[2:], uint16(len(tcp)))
	if sum := checksum16(append(pseudo, tcp...)); sum != 0xffff {
		t.Errorf("TCP segment sums up to %#x", sum)
	}
	s.src += fmt.Sprint(":", binary.BigEndian.Uint16(tcp))
	s.dst += fmt.Sprint(":", binary.BigEndian.Uint16(tcp[2:]))
	s.seq, s.ack = binary.BigEndian.Uint32(tcp[4:]), binary.BigEndian.Uint32(tcp[8:])
	s.words, s.flags, s.len = int(tcp[12]>>4), tcp[13], len(ip)
	return s
}

// sniff opens a packet socket on an interface of the machine's namespace; read returns the next TCP frame that comes in.
func (m *machine) sniff(t *testing.T, name string) (read func() []byte) {
	t.Helper()
	var fd int
	m.ns.Do(t, func() {
		var err error
		const everything = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
			t.Fatal(err)
		}
		if err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: everything & 0xffff, Ifindex: m.index(t, name)}); err != nil {
			t.Fatal(err)
		}
		if err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
			t.Fatal(err)
		}
	})
	file := os.NewFile(uintptr(fd), "packets of "+name)
	t.Cleanup(func() { file.Close() })
	return func() []byte {
		t.Helper()
		if err := file.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		for {
			b := make([]byte, 4096)
			n, err := file.Read(b)
			if err != nil {
				t.Fatalf("nothing comes out of %s: %v", name, err)
			}
			if b = b[:n]; n >= 54 && b[12] == 8 && b[23] == 6 || n >= 74 && b[12] == 0x86 && b[22]&0x20 != 0 && b[22] != 0xfe {
				return b
			}
		}
	}
}

// TestARevokedTCPFlowIsReset: what was denied goes on as a RST, and a RST goes back, each as the receiver expects it.
func TestARevokedTCPFlowIsReset(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	atPod, atVeth := w.sniff(t, "podcaliA"), w.sniff(t, "caliA")
	longer := func(f family) []testutil.Extension {
		if f.a.Is4() {
			return nil
		}
		return append(ext(60, 2), ext(43, 1)...)
	}
	tests := []struct {
		name    string
		flags   uint8
		payload int
		options int // words of TCP options
		longIP  bool
		ends    uint32 // sequence numbers that SYN and FIN take
	}{
		{name: "without payload", flags: ack},
		{name: "with payload", flags: ack | testutil.PSH, payload: 777},
		{name: "with one byte", flags: ack, payload: 1},
		{name: "with TCP options", flags: ack, payload: 100, options: 10},
		{name: "with IP options or extension headers, which go no further", flags: ack, payload: 100, options: 3, longIP: true},
		{name: "FIN", flags: fin, payload: 10, ends: 1},
		{name: "SYN-ACK", flags: synack, ends: 1},
	}
	for _, tc := range tests {
		w.eachFamily(t, tc.name, func(t *testing.T, f family) {
			for _, out := range []bool{true, false} {
				w.reset(t)
				w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, syn).Bytes()).want(t, 0)
				w.toPod(t, w.podA, outside, tcp(f.out, f.a, 80, 1000, synack).Bytes()).want(t, 0)
				w.publish(t, w.a, word(slotDeny, 2), word(slotDeny, 2))
				p := tcp(f.a, f.out, 1000, 80, 0)
				if !out {
					p = tcp(f.out, f.a, 80, 1000, 0)
				}
				h := p.L4.(testutil.TCP)
				h.Flags, h.Seq, h.Ack, h.Options = tc.flags, 0xfffffff0, 77, make([]byte, 4*tc.options)
				p.L4, p.Payload = h, make([]byte, tc.payload)
				if tc.longIP {
					p.Extensions = longer(f)
					if f.a.Is4() {
						p.Options = []byte{1, 1, 1, 1, 1, 1, 1, 1}
					}
				}
				frame := p.Bytes()
				ipLen := len(frame) - 14 - 20 - 4*tc.options - tc.payload
				var r result
				var back []byte
				if out {
					r = w.fromPod(t, w.podA, frame)
					back = atPod()
				} else {
					r = w.toPod(t, w.podA, outside, frame)
					back = atVeth()
				}
				action, mark := next, uint32(markOwn|markSeen)
				if tc.longIP { // its headers may hold anything, so it goes no further
					action, mark = drop, r.mark
				}
				if r.action != action || r.reason() != bpf.MargayDropReasonDROP_REVOKED || r.mark != mark {
					t.Fatalf("action %d, reason %s, mark %#x", r.action, bpf.Label(r.reason()), r.mark)
				}
				there, again := parseSegment(t, r.frame), parseSegment(t, back)
				before := parseSegment(t, frame)
				want := segment{before.src, before.dst, h.Seq, h.Ack, testutil.RST | testutil.ACK, 5, ipLen + 20}
				if there != want && !tc.longIP {
					t.Errorf("passed on %+v\nwant      %+v", there, want)
				}
				want = segment{before.dst, before.src, h.Ack, h.Seq + uint32(tc.payload) + tc.ends, testutil.RST | testutil.ACK, 5, ipLen + 20}
				if again != want {
					t.Errorf("sent back %+v\nwant      %+v", again, want)
				}
				if !tc.longIP && string(r.frame[:12]) != string(frame[:12]) || string(back[:6]) != string(frame[6:12]) || string(back[6:12]) != string(frame[:6]) {
					t.Errorf("Ethernet addresses %x and %x, of %x", r.frame[:12], back[:12], frame[:12])
				}
				if fl := w.flow(t); !fl.has(revoked) {
					t.Errorf("flow %+v, want it revoked", fl)
				}
			}
		})
	}
}

// TestResetsOfAFlowAreFew: the numbers in a reset are the sender's, so one packet in a second of each direction becomes one.
func TestResetsOfAFlowAreFew(t *testing.T) {
	w := newWorld(t, bpf.Config{Hz: 1 << 30}) // a second is longer than any test
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, syn).Bytes()).want(t, 0)
		w.toPod(t, w.podA, outside, tcp(f.out, f.a, 80, 1000, synack).Bytes()).want(t, 0)
		w.publish(t, w.a, word(slotDeny, 2), word(slotDeny, 2))
		from := func() result { return w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, ack).Bytes()) }
		to := func() result { return w.toPod(t, w.podA, outside, tcp(f.out, f.a, 80, 1000, ack).Bytes()) }
		expect := func(what string, r result, action int) {
			t.Helper()
			if r.action != action || r.reason() != bpf.MargayDropReasonDROP_REVOKED {
				t.Errorf("%s: action %d, reason %s, want action %d", what, r.action, bpf.Label(r.reason()), action)
			}
		}
		expect("the first packet from the pod", from(), next)
		for range 3 {
			expect("another one from the pod", from(), drop)
		}
		expect("the first packet to the pod", to(), next)
		expect("another one to the pod", to(), drop)
		expect("one more from the pod", from(), drop)
		fl := w.flow(t)
		if !fl.has(revoked) || fl.entry.Egress&uint32(bpf.MargayCtStampRESET_AT) == 0 || fl.entry.Ingress&uint32(bpf.MargayCtStampRESET_AT) == 0 {
			t.Fatalf("flow %+v, want it revoked, with the times of two resets", fl)
		}
	})
}

// TestAResetIsNotJudgedByTheMarkOfItsPacket: the sender's egress has marked the packet of a Service's flow. The RST that goes back on the
// node would be judged by its own end of that flow, and dropped.
func TestAResetIsNotJudgedByTheMarkOfItsPacket(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.toPod(t, w.podB, w.podA, tcp(f.out, f.b, 1000, 80, syn).Bytes()).want(t, 0)
		w.fromPod(t, w.podB, tcp(f.b, f.out, 80, 1000, synack).Bytes()).want(t, 0)
		w.publish(t, w.b, word(slotDeny, 2), word(slotDeny, 2))
		at := skb{Ifindex: w.podB, IngressIfindex: outside, Mark: markSeen | markJudge | markForeign}
		r := w.run(t, bpf.MargayProgToPod, at, tcp(f.out, f.b, 1000, 80, ack).Bytes())
		if want := uint32(markOwn | markSeen | markForeign); r.reason() != bpf.MargayDropReasonDROP_REVOKED || r.mark != want {
			t.Errorf("reason %s, mark %#x, want it revoked and %#x", bpf.Label(r.reason()), r.mark, want)
		}
	})
}

// TestNoRSTForARST: nor for fragments; they are dropped.
func TestNoRSTForARST(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, syn).Bytes()).want(t, 0)
		w.publish(t, w.a, word(slotDeny, 2), word(slotDeny, 2))
		w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, rst).Bytes()).want(t, bpf.MargayDropReasonDROP_REVOKED)
		p := tcp(f.a, f.out, 1000, 80, ack)
		p.MoreFragments = true
		w.fromPod(t, w.podA, p.Bytes()).want(t, bpf.MargayDropReasonDROP_REVOKED)
	})
}

// TestPaddingIsNoPayload: a short frame's padding takes no sequence numbers.
func TestPaddingIsNoPayload(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	atPod := w.sniff(t, "podcaliA")
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, syn).Bytes()).want(t, 0)
		w.publish(t, w.a, word(slotDeny, 2), word(slotDeny, 2))
		r := w.fromPod(t, w.podA, append(tcp(f.a, f.out, 1000, 80, ack).Bytes(), make([]byte, 6)...))
		parseSegment(t, r.frame)
		if back := parseSegment(t, atPod()); back.ack != 1000 {
			t.Errorf("acknowledges %d, want 1000", back.ack)
		}
	})
}
