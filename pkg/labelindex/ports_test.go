package labelindex

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/model"
)

// Ports are found by name among any number of them, in the order in which the item has them.
func TestPortsAreFoundByName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ports []model.NamedPort
		names := map[string][]model.NamedPort{}
		for range rapid.SampledFrom([]int{0, 1, 2, fewPorts - 1, fewPorts, fewPorts + 1, 100}).Draw(t, "ports") {
			p := model.NamedPort{Name: fmt.Sprint("p", rapid.IntRange(0, 40).Draw(t, "name")), Protocol: model.ProtoTCP,
				Port: uint16(rapid.IntRange(1, 3).Draw(t, "number"))}
			ports, names[p.Name] = append(ports, p), append(names[p.Name], p)
		}
		x, it := newIndex(), &testItem{}
		x.Join(it, Identity{Ports: ports})
		if got := it.group.Ports(); !slices.Equal(got, ports) {
			t.Fatalf("ports %v, want %v", got, ports)
		}
		seen := map[string]bool{}
		for name := range it.group.PortNames() {
			if seen[name] || names[name] == nil {
				t.Fatalf("%s is yielded again, or has no port", name)
			}
			seen[name] = true
		}
		if len(seen) != len(names) {
			t.Fatalf("%d names, want %d", len(seen), len(names))
		}
		for _, name := range []string{"", "p", "p0", "p1", "p17", "p40", "p5", "zebra"} {
			if got := slices.Collect(it.group.PortsNamed(name)); !slices.Equal(got, names[name]) {
				t.Fatalf("%s has ports %v, want %v", name, got, names[name])
			}
		}
		for name := range it.group.PortNames() {
			for p := range it.group.PortsNamed(name) {
				if p.Name != name {
					t.Fatalf("%s is %v", name, p)
				}
				break
			}
			break
		}
	})
}
