package iptables

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/margay-project/margay/pkg/further"
)

// changedNode is a node whose interfaces are others than the test's endpoints have.
type changedNode struct {
	quietNode
	interfaces map[string]uint32
}

func (n changedNode) Interfaces() map[string]uint32 { return maps.Clone(n.interfaces) }

// Which interfaces are ready is known before the first Apply: those that an earlier agent has left so, and none that has come in place of
// one with other addresses.
func TestWhichInterfacesAreReadyIsKnownBeforeTheFirstApply(t *testing.T) {
	n := newFakeNode(t)
	want := func(when string, names ...string) {
		t.Helper()
		wanted := map[string]bool{}
		for _, name := range names {
			wanted[name] = true
		}
		for range 2 { // the second answer is that from memory
			if got := n.Ready(); got == nil || !maps.Equal(got, wanted) {
				t.Errorf("%s: ready are %v, want %v", when, got, names)
			}
		}
	}
	want("nothing enforced")
	n.routes = slices.Concat(routeTo("calia", "10.0.0.10/32"), routeTo("cali0", "10.0.2.1/32"), routeTo("cali1", "10.0.2.2/32"))
	n.mustApply(t, narrow.updates()...)
	want("enforced", "calia", "cali0", "cali1")

	n.open(t)
	want("the next agent", "calia", "cali0", "cali1")
	there := quietNode{}.Interfaces()
	there["calia"] = 2000
	delete(there, "cali0")
	n.kernel.Node = changedNode{interfaces: there}
	n.routes = slices.Concat(routeTo("calia", "10.0.0.77/32", "10.0.2.0/24"), routeTo("cali1", "10.0.2.2/32"))
	want("one is another interface, one has gone", "cali1")
	there["cali1"] = 2001
	n.routes = slices.Concat(routeTo("calia", "10.0.2.2/32"), routeTo("cali1", "10.0.2.0/24", "10.0.2.2/32"))
	want("another interface has the address of the third")

	there["cali1"] = 2002
	n.kernel.Routes = func(map[string]bool) ([]further.Route, error) { return nil, errors.New("no memory") }
	if got := n.Ready(); got != nil {
		t.Errorf("without routes ready are %v, want not known", got)
	}
}
