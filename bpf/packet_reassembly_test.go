package bpf_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// hardwareAddr is the MAC address of an interface: frames for others are not the node's.
func (m *machine) hardwareAddr(t testing.TB, index uint32) net.HardwareAddr {
	t.Helper()
	h, err := netlink.NewHandleAt(netns.NsHandle(m.ns.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	l, err := h.LinkByIndex(int(index))
	if err != nil {
		t.Fatal(err)
	}
	return l.Attrs().HardwareAddr
}

// account is the account of a share's fragments under way, of one family.
func (m *machine) account(t testing.TB, v6 bool, share uint32) (a bpf.MargayFragAccount) {
	t.Helper()
	if v6 {
		share += bpf.Shares + 1
	}
	if err := m.Maps[bpf.MargayMapFragMemory].Lookup(share, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// charged is what a share has under way, by the account of the family.
func (m *machine) charged(t testing.TB, v6 bool, share uint32) (own, common uint32) {
	t.Helper()
	for _, p := range m.account(t, v6, share).Of {
		own, common = own+p.Own, common+p.Common
	}
	return own, common
}

// wantNoCharge demands that nothing is charged in the present period. Only charges of this one are refunded, so datagrams during which a
// period ends, of which there are so many at a time, may leave two fragments each in the one before.
func (m *machine) wantNoCharge(t testing.TB, v6 bool, share, datagrams uint32) {
	t.Helper()
	account := m.account(t, v6, share)
	present := uint32(0)
	for _, p := range account.Of {
		present = max(present, p.Period)
	}
	for _, p := range account.Of {
		if p.Common != 0 || p.Own > datagrams*2*1024 || p.Own != 0 && p.Period == present {
			t.Errorf("%d and %d bytes are charged in period %d, want none; it is %d now", p.Own, p.Common, p.Period, present)
		}
	}
}

// datagram is the three fragments of one from pod A, for the node's MAC address.
func (w *world) datagram(t testing.TB, src, dst netip.Addr, veth, id uint32) [][]byte {
	p := udp(src, dst, 1000, 53)
	p.DstMAC = w.hardwareAddr(t, veth)
	return fragments(p, id)
}

// TestWholeDatagramsCostNothing: what the kernel has put together leaves no charge, however much it is.
func TestWholeDatagramsCostNothing(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		for i := range uint32(600) { // more than twice what may be charged
			for _, frame := range w.datagram(t, f.a, f.out, w.podA, i) {
				w.fromPod(t, w.podA, frame).want(t, 0)
			}
		}
		w.wantNoCharge(t, f == v6, 1, 1)
	})
}

// TestPacketsOfOneFragmentCostNothing: the kernel holds nothing of those either (RFC 6946).
func TestPacketsOfOneFragmentCostNothing(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	for i := range uint32(1000) {
		w.fromPod(t, w.podA, w.whole(t, v6, w.podA, i, make([]byte, 100))).want(t, 0)
	}
	w.wantNoCharge(t, true, 1, 1)
}

// TestIncompleteDatagramsAreBounded: one pod has at most its own share and half of what all have in common, and the next
// one still has enough for a datagram. What was refused is followed by nothing.
func TestIncompleteDatagramsAreBounded(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	limit := bpf.MargayDropReasonDROP_FRAG_LIMIT
	w.eachFamily(t, "", func(t *testing.T, f family) {
		passed := 0
		for i := range uint32(400) { // more may take longer than the kernel keeps them, under emulation
			frames := w.datagram(t, f.a, f.out, w.podA, i)
			switch r := w.fromPod(t, w.podA, frames[0]); r.reason() {
			case 0:
				passed++
			case limit:
				want := bpf.MargayDropReasonDROP_FRAG_NO_FIRST
				if r := w.fromPod(t, w.podA, frames[1]).reason(); r != want && r != bpf.MargayDropReasonDROP_FRAG_DENIED {
					t.Fatalf("after a refused first fragment: %s", bpf.Label(r))
				}
			default:
				t.Fatal(bpf.Label(r.reason()))
			}
		}
		if most := bpf.FragSets * bpf.FragWays; passed > most || passed < most/2 {
			t.Errorf("%d first fragments have passed, want nearly %d", passed, most)
		}
		// Large ones, until the bytes are used up.
		refused := 0
		for id := uint32(0); id < uint32(passed) && refused < 100; id++ {
			p := udp(f.a, f.out, 1000, 53)
			p.DstMAC, p.ID, p.Payload = w.hardwareAddr(t, w.podA), id, make([]byte, 60000)
			for _, frame := range p.Fragments(2048)[1:] {
				if w.fromPod(t, w.podA, frame).reason() == limit {
					refused++
				}
			}
		}
		own, common := w.charged(t, f == v6, 1)
		if own > bpf.FragOwnBytes || common > bpf.FragCommonBytes/2+4096 || common < bpf.FragCommonBytes/3 {
			t.Errorf("%d and %d bytes are charged", own, common)
		}
		for _, frame := range w.datagram(t, f.b, f.out, w.podB, 1) {
			w.fromPod(t, w.podB, frame).want(t, 0)
		}
		t.Logf("%d open datagrams, %d and %d bytes", passed, own, common)
	})
}

// TestChargesEndWithTheKernelsTimeout and not before.
func TestChargesEndWithTheKernelsTimeout(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		all := w.datagram(t, f.a, f.out, w.podA, 1)
		w.fromPod(t, w.podA, all[0]).want(t, 0)
		own, _ := w.charged(t, f == v6, 1)
		share := uint32(1)
		if f == v6 {
			share += bpf.Shares + 1
		}
		// newest is the latest period with charges.
		newest := func() (a bpf.MargayFragAccount, period uint32) {
			if err := w.Maps[bpf.MargayMapFragMemory].Lookup(share, &a); err != nil {
				t.Fatal(err)
			}
			for _, p := range a.Of {
				if p.Own != 0 {
					period = max(period, p.Period)
				}
			}
			return a, period
		}
		age := func(periods uint32) {
			a, _ := newest()
			var moved bpf.MargayFragAccount
			moved.Fragments = a.Fragments
			for _, p := range a.Of {
				if p.Own != 0 {
					p.Period -= periods
					moved.Of[p.Period%bpf.FragPeriods] = p
				}
			}
			w.put(t, bpf.MargayMapFragMemory, share, moved)
		}
		count := func(id uint32) uint32 {
			w.fromPod(t, w.podA, w.datagram(t, f.a, f.out, w.podA, id)[0]).want(t, 0)
			n := uint32(0)
			for full := bpf.FragOwnBytes / own; n < 2*full; n++ {
				w.fromPod(t, w.podA, w.datagram(t, f.a, f.out, w.podA, id+1+n)[0])
				if _, common := w.charged(t, f == v6, 1); common > 0 {
					break
				}
			}
			return n
		}
		// fit is how many fragments fit beside one that is so many periods old. It counts again if the kernel's clock comes to
		// another period meanwhile.
		fit := func(periods uint32) uint32 {
			for range 5 {
				w.forget(t)
				w.fromPod(t, w.podA, all[0]).want(t, 0)
				_, before := newest()
				age(periods)
				n := count(100)
				if _, after := newest(); before == after {
					return n
				}
			}
			t.Fatal("each count took longer than a period")
			return 0
		}
		with := fit(6) // 36 seconds, and 66
		if without := fit(7); without != with+1 {
			t.Errorf("%d fragments fit beside one that is 6 periods old, %d beside one of 7 periods", with, without)
		}
	})
}

// TestOnlyWhatIsSurelyCompleteIsForgotten: whatever could leave something in the kernel stays charged.
func TestOnlyWhatIsSurelyCompleteIsForgotten(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		bad := func(frame []byte, change func(b []byte)) []byte {
			b := append([]byte(nil), frame...)
			change(b)
			return b
		}
		sent := func(frames ...[]byte) func(*testing.T) {
			return func(t *testing.T) {
				for _, frame := range frames {
					w.fromPod(t, w.podA, frame)
				}
			}
		}
		a := w.datagram(t, f.a, f.out, w.podA, 1)
		p := udp(f.a, f.out, 1000, 53)
		p.DstMAC, p.ID, p.Payload = w.hardwareAddr(t, w.podA), 1, make([]byte, 100)
		odd := p
		odd.L4, odd.Payload, odd.Protocol, odd.MoreFragments, odd.FragmentOffset = nil, make([]byte, 36), 17, true, 40
		extended := p
		if f == v4 {
			extended.Options = []byte{1, 1, 1, 1}
		} else {
			extended.Extensions = []testutil.Extension{{Header: 60, Body: make([]byte, 6)}}
		}
		cases := map[string]func(*testing.T){
			"first alone":                 sent(a[0]),
			"last missing":                sent(a[0], a[1]),
			"middle missing":              sent(a[0], a[2]),
			"out of order":                sent(a[0], a[2], a[1]),
			"repeated first":              sent(a[0], a[0], a[1], a[2]),
			"repeated middle":             sent(a[0], a[1], a[1], a[2]),
			"repeated last":               sent(a[0], a[1], a[2], a[2]),
			"sent again at once":          sent(a[0], a[1], a[2], a[0], a[1], a[2]),
			"other node's MAC address":    sent(a[0], a[1], bad(a[2], func(b []byte) { b[5] ^= 1 })),
			"length no multiple of eight": sent(a[0], odd.Bytes(), a[2]),
			"options":                     sent(a[0], extended.Fragments(40)[1], a[2]),
		}
		if f == v4 {
			cases["wrong checksum"] = sent(a[0], a[1], bad(a[2], func(b []byte) { b[14+10] ^= 1 }))
			cases["many others between"] = func(t *testing.T) {
				sent(a[0], a[1])(t)
				for id := range uint32(17) {
					sent(w.datagram(t, f.a, f.out, w.podA, 100+id)...)(t)
				}
				sent(a[2])(t)
			}
		}
		if f == v6 {
			atomic := w.whole(t, f, w.podA, 1, make([]byte, 100))
			cases["a whole one in a fragment header between"] = sent(a[0], a[1], atomic, a[2])
			cases["a first one without transport"] = sent(w.withoutTransport(t, f, w.podA, 1)...)
		}
		for name, send := range cases {
			t.Run(name, func(t *testing.T) {
				w.forget(t)
				send(t)
				if own, _ := w.charged(t, f == v6, 1); own == 0 {
					t.Error("nothing is charged")
				}
			})
		}
		t.Run("few others between", func(t *testing.T) {
			w.forget(t)
			sent(a[0], a[1])(t)
			for id := range uint32(15) {
				sent(w.datagram(t, f.a, f.out, w.podA, 100+id)...)(t)
			}
			sent(a[2])(t)
			w.wantNoCharge(t, f == v6, 1, 2)
		})
		t.Run("denied", func(t *testing.T) {
			w.forget(t)
			w.publish(t, w.a, word(slotAllow, 1), word(slotDeny, 2))
			sent(a...)(t)
			w.wantNoCharge(t, f == v6, 1, 2)
			w.publish(t, w.a, word(slotAllow, 1), word(slotAllow, 3))
		})
	})
}

// whole is a packet of pod A that is not in fragments and has a fragment header all the same: an atomic fragment (RFC 6946). The kernel
// puts it together with fragments of the same number.
func (w *world) whole(t testing.TB, f family, veth, id uint32, payload []byte) []byte {
	p := udp(f.a, f.out, 1000, 53)
	p.DstMAC, p.ID, p.Fragmented, p.Payload = w.hardwareAddr(t, veth), id, true, payload
	return p.Bytes()
}

// withoutTransport are two fragments of pod A, the first of which has destination options behind its fragment header and ends there. The
// kernel does not put such a fragment together with others (RFC 8200, 4.5).
func (w *world) withoutTransport(t testing.TB, f family, veth, id uint32) [][]byte {
	p := testutil.Packet{Src: f.a, Dst: f.out, DstMAC: w.hardwareAddr(t, veth), ID: id, Protocol: 60}
	first, last := p, p
	first.MoreFragments, first.Payload = true, []byte{253, 0, 1, 4, 0, 0, 0, 0}
	last.FragmentOffset, last.Payload = 8, make([]byte, 40)
	return [][]byte{first.Bytes(), last.Bytes()}
}
