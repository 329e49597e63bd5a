package bpf_test

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// So many flows of each family begin while entries of addresses change, or as many as there is time for.
const (
	movingFlows = 20_000
	movingFor   = 5 * time.Second
)

// during calls do all the time, until end is called.
func during(do func()) (end func()) {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			do()
		}
	})
	return func() {
		stop()
		running.Wait()
	}
}

// begins begins a flow of pod A, and returns the action and where the frame goes.
func (w *world) begins(t *testing.T, to netip.Addr, port uint16) (action int, mac [6]byte) {
	t.Helper()
	from := v4.a
	if to.Is6() {
		from = v6.a
	}
	opts := &ebpf.RunOptions{Data: udp(from, to, port, 53).Bytes(), DataOut: make([]byte, 256), Context: skb{Ifindex: w.podA}}
	r, err := w.Programs[bpf.MargayProgFromPod].Run(opts)
	if err != nil {
		t.Fatal(err)
	}
	return int(int32(r)), [6]byte(opts.DataOut[:6])
}

// TestAFlowBeginsWhileItsAddressMoves: the entries of two pods change as they do when a set that both are in does, and so do those of two
// prefixes. Maps use the memory of what was replaced again, some at once. No packet goes to the other pod, and each is judged by its own
// address.
func TestAFlowBeginsWhileItsAddressMoves(t *testing.T) {
	w := newWorld(t, bpf.Config{NoShortcut: shortcut})
	w.policy(t, 10, rule(bpf.RuleAllow, 0, setB))
	to, others := [2]uint32{0xff, 0x100}, [2]uint32{0x1ff, 0x200} // classes, whose bytes mixed are other ones
	for i := range uint64(2) {
		w.put(t, bpf.MargayMapClassSets, bpf.ClassChunk{Class: to[i]}, bpf.SetBits{Bits: [8]uint64{1 << setB, i}})
		w.put(t, bpf.MargayMapClassSets, bpf.ClassChunk{Class: others[i]}, bpf.SetBits{Bits: [8]uint64{0, i}})
	}
	w.eachFamily(t, "udp", func(t *testing.T, f family) {
		w.publish(t, w.a, word(slotAllow, 1), word(10, 1))
		inside := w.prefix(t, f.other, bpf.AddrInfo{Class: to[0]})
		moving := uint32(0)
		move := func() {
			moving ^= 1
			w.address(t, f.b, bpf.AddrInfo{Class: to[moving], Flags: bpf.AddrEndpoint, Ifindex: w.podB})
			w.address(t, f.a, bpf.AddrInfo{Class: others[moving], Flags: bpf.AddrEndpoint, Ifindex: w.podA})
			w.prefix(t, f.other, bpf.AddrInfo{Class: to[moving]})
			w.prefix(t, f.service, bpf.AddrInfo{Class: others[moving]})
		}
		move()
		defer during(move)()
		w.ns.Do(t, func() {
			began := time.Now()
			for i := uint16(0); i < movingFlows && time.Since(began) < movingFor; i++ {
				if action, mac := w.begins(t, f.b, 1000+i); action != redirect || mac != w.b.Mac {
					t.Fatalf("flow %d: action %d, to %x; want it redirected to %x", i, action, mac, w.b.Mac)
				}
				if action, _ := w.begins(t, inside, 1000+i); action != next {
					t.Fatalf("flow %d to a prefix: action %d, want it to pass", i, action)
				}
			}
		})
	})
}

// TestAnEntryOfAnotherAddressIsNotRead: the memory of an entry that was removed may have another address when a program reads it. It then
// counts as removed, as it was: a packet is judged by the prefix around its address.
func TestAnEntryOfAnotherAddressIsNotRead(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.policy(t, 10, rule(bpf.RuleAllow, 0, setOut))
	w.eachFamily(t, "udp", func(t *testing.T, f family) {
		w.publish(t, w.a, word(slotAllow, 1), word(10, 1))
		w.put(t, bpf.MargayMapClassSets, bpf.ClassChunk{Class: 60}, bpf.SetBits{Bits: [8]uint64{1 << setOut}})
		foreign := bpf.HostInfoOf(f.service, bpf.AddrInfo{Class: 60})
		if f.other.Is4() {
			w.put(t, bpf.MargayMapIp4Host, bpf.IP4{Addr: f.other.As4()}, foreign)
		} else {
			w.put(t, bpf.MargayMapIp6Host, bpf.IP6{Addr: f.other.As16()}, foreign)
		}
		w.fromPod(t, w.podA, udp(f.a, f.other, 1000, 53).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		w.prefix(t, f.other, bpf.AddrInfo{Class: 60})
		w.fromPod(t, w.podA, udp(f.a, f.other, 1001, 53).Bytes()).want(t, 0)
	})
}

// prefix writes the entry of a prefix around an address, and returns another address in it.
func (m *machine) prefix(t testing.TB, a netip.Addr, info bpf.AddrInfo) (inside netip.Addr) {
	t.Helper()
	if a.Is4() {
		m.put(t, bpf.MargayMapIp4Net, bpf.Net4{Prefixlen: 30, Addr: netip.PrefixFrom(a, 30).Masked().Addr().As4()}, info)
	} else {
		m.put(t, bpf.MargayMapIp6Net, bpf.Net6{Prefixlen: 126, Addr: netip.PrefixFrom(a, 126).Masked().Addr().As16()}, info)
	}
	return a.Prev()
}
