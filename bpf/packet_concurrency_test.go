package bpf_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// TestBothEndsAtOnce: packets of the same flows on several CPUs, while policy changes and sweeps run. No run fails, and
// when all is quiet again the policy in force is what counts.
func TestBothEndsAtOnce(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	const flows, rounds = 16, 150
	w.publish(t, w.a, word(slotAllow, 1), word(slotAllow, 1))
	var sides sync.WaitGroup
	side := func(program string, at skb, frames [][]byte) {
		sides.Go(func() {
			w.ns.Do(t, func() {
				for i := range rounds * flows {
					if _, err := w.Programs[program].Run(&ebpf.RunOptions{Data: frames[i%flows], Context: at}); err != nil {
						t.Errorf("%s: %v", program, err)
						return
					}
				}
			})
		})
	}
	var out, in, syns, replies [][]byte
	for i := range uint16(flows) {
		out = append(out, udp(v4.a, v4.out, 1000+i, 53).Bytes())
		in = append(in, udp(v4.out, v4.a, 53, 1000+i).Bytes())
		syns = append(syns, tcp(v6.a, v6.out, 1000+i, 80, []uint8{syn, ack}[i%2]).Bytes())
		replies = append(replies, tcp(v6.out, v6.a, 80, 1000+i, []uint8{synack, ack}[i%2]).Bytes())
	}
	from, to := skb{Ifindex: w.podA}, skb{Ifindex: w.podA, IngressIfindex: outside}
	for range max(1, runtime.NumCPU()/2) {
		side(bpf.MargayProgFromPod, from, out)
		side(bpf.MargayProgToPod, to, in)
		side(bpf.MargayProgFromPod, from, syns)
		side(bpf.MargayProgToPod, to, replies)
	}
	for gen := uint32(2); gen < 40; gen++ {
		slot := uint32(slotAllow)
		if gen%4 == 0 {
			slot = slotDeny
		}
		w.publish(t, w.a, word(slotDeny, gen), word(slot, gen))
		w.sweepAll(t)
	}
	sides.Wait()
	w.publish(t, w.a, word(slotDeny, 50), word(slotAllow, 50))
	for i := range flows {
		w.fromPod(t, w.podA, out[i]).want(t, 0)
		w.toPod(t, w.podA, outside, in[i]).want(t, 0)
	}
	w.publish(t, w.a, word(slotDeny, 51), word(slotDeny, 51))
	for i := range flows {
		w.toPod(t, w.podA, outside, in[i]).want(t, bpf.MargayDropReasonDROP_REVOKED)
		w.fromPod(t, w.podA, out[i]).want(t, bpf.MargayDropReasonDROP_POLICY)
	}
}
