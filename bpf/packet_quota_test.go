package bpf_test

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/bpf"
)

// share is what the programs count of a share of the flow tables.
func (w *world) share(t *testing.T, number uint32) bpf.Share {
	t.Helper()
	var s bpf.Share
	if err := w.Maps[bpf.MargayMapShares].Lookup(number, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// counted is what the programs say of the open flows of a share.
func (w *world) counted(t *testing.T, number uint32) bpf.Share {
	t.Helper()
	s := w.share(t, number)
	return bpf.Share{Open: s.Open, Refused: s.Refused}
}

func (w *world) wantCounts(t *testing.T, what string, a, b bpf.Share) {
	t.Helper()
	if diff := cmp.Diff([]bpf.Share{a, b}, []bpf.Share{w.counted(t, w.a.Share), w.counted(t, w.b.Share)}); diff != "" {
		t.Errorf("%s: %s", what, diff)
	}
	inOpen := uint32(0)
	for _, f := range w.flows(t) {
		if f.open {
			inOpen++
		}
	}
	if inOpen != a.Open+b.Open {
		t.Errorf("%s: %d open flows, %d counted", what, inOpen, a.Open+b.Open)
	}
}

// TestAnEndpointHasNoMoreOpenFlowsThanItsShare: what is beyond it is tracked all the same, and counted; every open flow
// is counted once, and out once, however it ends.
func TestAnEndpointHasNoMoreOpenFlowsThanItsShare(t *testing.T) {
	w := newWorld(t, bpf.Config{FlowQuota: 2})
	w.eachFamily(t, "quota", func(t *testing.T, f family) {
		asked := func(port uint16) {
			t.Helper()
			w.fromPod(t, w.podA, udp(f.a, f.out, port, 53).Bytes()).want(t, 0)
			w.toPod(t, w.podA, outside, udp(f.out, f.a, 53, port).Bytes()).want(t, 0)
			w.fromPod(t, w.podA, udp(f.a, f.out, port, 53).Bytes()).want(t, 0)
		}
		for port := range uint16(4) {
			asked(1000 + port)
			asked(1000 + port)
		}
		w.wantCounts(t, "four flows", bpf.Share{Open: 2, Refused: 2}, bpf.Share{})

		// Another endpoint's share is its own; it is charged with what is opened from elsewhere.
		w.toPod(t, w.podB, outside, udp(f.out, f.b, 1000, 53).Bytes()).want(t, 0)
		w.fromPod(t, w.podB, udp(f.b, f.out, 53, 1000).Bytes()).want(t, 0)
		w.toPod(t, w.podB, outside, udp(f.out, f.b, 1000, 53).Bytes()).want(t, 0)
		w.wantCounts(t, "another endpoint", bpf.Share{Open: 2, Refused: 2}, bpf.Share{Open: 1})

		// Between two pods of the node, the opener's.
		w.fromPod(t, w.podB, udp(f.b, f.a, 2000, 53).Bytes()).want(t, 0)
		w.toPod(t, w.podA, w.podB, udp(f.b, f.a, 2000, 53).Bytes()).want(t, 0)
		w.fromPod(t, w.podA, udp(f.a, f.b, 53, 2000).Bytes()).want(t, 0)
		w.fromPod(t, w.podB, udp(f.b, f.a, 2000, 53).Bytes()).want(t, 0)
		w.wantCounts(t, "pod to pod", bpf.Share{Open: 2, Refused: 2}, bpf.Share{Open: 2})

		// One is revoked: it has its place until it expires.
		w.publish(t, w.a, word(slotAllow, 1), word(slotDeny, 2))
		w.fromPod(t, w.podA, udp(f.a, f.out, 1000, 53).Bytes()).want(t, bpf.MargayDropReasonDROP_REVOKED)
		w.publish(t, w.a, word(slotAllow, 1), word(slotAllow, 3))
		w.wantCounts(t, "one revoked", bpf.Share{Open: 2, Refused: 2}, bpf.Share{Open: 2})
		asked(1010)
		w.wantCounts(t, "another beside it", bpf.Share{Open: 2, Refused: 3}, bpf.Share{Open: 2})

		w.age(t)
		w.sweepAll(t)
		w.noFlow(t)
		w.wantCounts(t, "swept", bpf.Share{Refused: 3}, bpf.Share{})
	})
}

// age makes all flows older than any timeout.
func (w *world) age(t *testing.T) {
	t.Helper()
	ageAll[bpf.Ct4Key](t, w.Maps[bpf.MargayMapCt4])
	ageAll[bpf.Ct6Key](t, w.Maps[bpf.MargayMapCt6])
}

func ageAll[K any](t *testing.T, m *ebpf.Map) {
	t.Helper()
	old := map[any]bpf.CtEntry{}
	var key K
	var entry bpf.CtEntry
	it := m.Iterate()
	for it.Next(&key, &entry) {
		entry.Seen -= 1 << 20
		old[key] = entry
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	for key, entry := range old {
		k := key.(K)
		if err := m.Update(&k, &entry, ebpf.UpdateExist); err != nil {
			t.Fatal(err)
		}
	}
}

// A connection that is opened again in its old entry stays where it is, and stays counted once.
func TestAReopenedFlowIsCountedOnce(t *testing.T) {
	w := newWorld(t, bpf.Config{FlowQuota: 1})
	w.eachFamily(t, "reopened", func(t *testing.T, f family) {
		for range 3 {
			w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, syn).Bytes()).want(t, 0)
			w.toPod(t, w.podA, outside, tcp(f.out, f.a, 80, 1000, syn|ack).Bytes()).want(t, 0)
			w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, ack).Bytes()).want(t, 0)
			if fl := w.flow(t); !fl.open || !fl.has(open) || fl.entry.Kept != w.a.Share+1 {
				t.Errorf("flow %+v, want an open one", fl)
			}
			w.wantCounts(t, "opened", bpf.Share{Open: 1}, bpf.Share{})
			w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, fin|ack).Bytes()).want(t, 0)
		}
	})
}
