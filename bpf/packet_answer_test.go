package bpf_test

import (
	"testing"

	"github.com/margay-project/margay/bpf"
)

// TestAnswersThatConntrackDoesNotFollowAreJudgedByTheRecord: nothing else says which backend they come from. So it is without
// conntrack, as in every test run.
func TestAnswersThatConntrackDoesNotFollowAreJudgedByTheRecord(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.policy(t, 10, rule(bpf.RuleAllow, 17, setB, 53))
	w.eachFamily(t, "", func(t *testing.T, f family) {
		for _, confirmed := range []uint8{0, uint8(bpf.MargayCtFlagsCT_CONFIRMED)} {
			e := bpf.CtEntry{Flags: uint8(bpf.MargayCtFlagsCT_TRANSLATED) | confirmed, L4: 53, Egress: 1, OpenerIf: w.podA}
			copy(e.Backend[:], f.b.AsSlice())
			answer := udp(f.service, f.a, 53, 1000).Bytes()
			w.publish(t, w.a, word(slotDeny, 1), word(10, 2))
			w.putServiceFlow(t, f, e)
			w.toPod(t, w.podA, outside, answer).want(t, 0)
			fl := w.flow(t)
			if fl.entry.Egress != 2 || !fl.has(bpf.MargayCtStateCT_REPLIED) || fl.entry.Flags&uint8(bpf.MargayCtFlagsCT_CONFIRMED) != confirmed {
				t.Errorf("after an answer: %+v, want stamp 2, replied, and confirmed as before", fl)
			}
			w.publish(t, w.a, word(slotDeny, 3), word(slotDeny, 3))
			w.toPod(t, w.podA, outside, answer).want(t, bpf.MargayDropReasonDROP_REVOKED)
			w.forget(t)
		}
	})
}
