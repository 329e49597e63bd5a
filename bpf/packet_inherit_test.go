package bpf_test

import (
	"testing"

	"github.com/margay-project/margay/bpf"
)

// TestAnAddressBringsNoFlows: a pod that has the address of one that has gone is judged as if that one had had no flows, whether it has the
// number of the former one's interface, too, or another one.
func TestAnAddressBringsNoFlows(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	other := w.veth(t, "caliC")
	denied := bpf.MargayDropReasonDROP_POLICY
	for name, ifindex := range map[string]uint32{"another interface number": other, "the same interface number": w.podA} {
		heir := func(ingress, egress, generation uint32) {
			ep := *w.a
			ep.Ifindex, ep.Id = ifindex, 10
			w.publish(t, &ep, word(ingress, generation), word(egress, generation+1))
		}
		w.eachFamily(t, name, func(t *testing.T, f family) {
			in, out := udp(f.out, f.a, 53, 1000).Bytes(), udp(f.a, f.out, 1000, 53).Bytes()

			// The former pod was asked. What the heir sends is no answer.
			w.publish(t, w.a, word(slotAllow, 2), word(slotDeny, 3))
			w.toPod(t, w.podA, outside, in).want(t, 0)
			w.fromPod(t, w.podA, out).want(t, 0)
			heir(slotAllow, slotDeny, 11)
			w.fromPod(t, ifindex, out).want(t, denied)
			w.toPod(t, ifindex, outside, in).want(t, 0)
			w.fromPod(t, ifindex, out).want(t, 0)
			w.forget(t)

			// The former pod has asked. What the heir gets is no answer.
			w.publish(t, w.a, word(slotDeny, 4), word(slotAllow, 5))
			w.fromPod(t, w.podA, out).want(t, 0)
			w.toPod(t, w.podA, outside, in).want(t, 0)
			heir(slotDeny, slotAllow, 21)
			w.toPod(t, ifindex, outside, in).want(t, denied)
			w.fromPod(t, ifindex, out).want(t, 0)
			w.toPod(t, ifindex, outside, in).want(t, 0)
			// Its own flows stay while its policy changes.
			heir(slotDeny, slotAllow, 31)
			w.toPod(t, ifindex, outside, in).want(t, 0)
		})
	}
}
