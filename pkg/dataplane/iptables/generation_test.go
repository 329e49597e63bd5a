package iptables

import (
	"errors"
	"testing"

	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/dataplane"
)

// When the numbers of generations start again, no connection keeps the mark of an earlier policy: neither if the kernel refuses at first
// to replace marks, nor one that chains have marked with the last number after that.
func TestNoMarkOutlivesTheLastGeneration(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	g := &n.state.static.generation
	g.number = g.most
	old, err := n.state.static.base.Marks.Generation(chains.FirstGeneration + 1)
	if err != nil {
		t.Fatal(err)
	}
	last, err := n.state.static.base.Marks.Generation(g.most)
	if err != nil {
		t.Fatal(err)
	}
	n.flows.marks = []uint32{old.Value}
	calls := 0
	n.flows.marking = func() error {
		switch calls++; calls {
		case 1:
			return errors.New("no buffer")
		case 4: // IPv4 and IPv6 are done once
			n.flows.marks = append(n.flows.marks, last.Value)
		}
		return nil
	}
	next := narrow
	next.ports = []uint16{443}
	if n.apply(next.updates()...) == nil {
		t.Fatal("the kernel's refusal is not reported")
	}
	n.mustApply(t)
	n.mustApply(t)
	if g.number > chains.FirstGeneration+1 || g.unreplaced != 0 { // the attempt that failed may have had the first number
		t.Errorf("the generation is %d, marks are to be replaced %d times", g.number, g.unreplaced)
	}
	for _, mark := range n.flows.marks {
		if mark == old.Value || mark == last.Value {
			t.Errorf("a connection still has the mark %#x", mark)
		}
	}
	if c, why := n.condition("a"); c != dataplane.Enforced {
		t.Errorf("%v: %s", c, why)
	}
}
