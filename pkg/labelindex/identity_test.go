package labelindex

import (
	"runtime"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/model"
)

// A group keeps what it needs of an identity, and not the list of parents or the map of labels that came with it: there may be
// very many.
func TestAGroupDoesNotKeepItsIdentity(t *testing.T) {
	x := newIndex()
	it := &testItem{}
	gone := make(chan bool)
	func() {
		parents := []string{"kns.shop"}
		runtime.AddCleanup(&parents[0], func(c chan bool) { close(c) }, gone)
		x.Join(it, Identity{Parents: parents, Ports: []model.NamedPort{{Name: "http", Protocol: model.ProtoTCP, Port: 80}}})
	}()
	deadline := time.After(10 * time.Second)
	for {
		runtime.GC()
		select {
		case <-gone:
			runtime.KeepAlive(x)
			return
		case <-deadline:
			t.Fatal("the list is kept")
		case <-time.After(time.Millisecond):
		}
	}
}

// An identity is a group's if all of it is: an item with another one belongs elsewhere.
func TestAGroupHasOneIdentity(t *testing.T) {
	whole := func() Identity {
		return Identity{Labels: map[string]string{"app": "web", "tier": "front"}, Parents: []string{"kns.shop", "ksa.shop.web", "more"},
			Ports: []model.NamedPort{{Name: "http", Protocol: model.ProtoTCP, Port: 80}}}
	}
	for name, change := range map[string]func(*Identity){
		"":                    func(*Identity) {},
		"another value":       func(id *Identity) { id.Labels["app"] = "db" },
		"another label":       func(id *Identity) { delete(id.Labels, "app"); id.Labels["role"] = "web" },
		"one label more":      func(id *Identity) { id.Labels["role"] = "web" },
		"no labels":           func(id *Identity) { id.Labels = nil },
		"another parent":      func(id *Identity) { id.Parents[0] = "kns.blog" },
		"another last one":    func(id *Identity) { id.Parents[2] = "other" },
		"other order":         func(id *Identity) { id.Parents[1], id.Parents[2] = id.Parents[2], id.Parents[1] },
		"one parent more":     func(id *Identity) { id.Parents = append(id.Parents, "last") },
		"one parent alone":    func(id *Identity) { id.Parents = id.Parents[:1] },
		"no parents":          func(id *Identity) { id.Parents = nil },
		"another number":      func(id *Identity) { id.Ports[0].Port = 81 },
		"another protocol":    func(id *Identity) { id.Ports[0].Protocol = model.ProtoUDP },
		"another port's name": func(id *Identity) { id.Ports[0].Name = "web" },
		"one port more": func(id *Identity) {
			id.Ports = append(id.Ports, model.NamedPort{Name: "dns", Protocol: model.ProtoUDP, Port: 53})
		},
		"no ports": func(id *Identity) { id.Ports = nil },
	} {
		changed := whole()
		change(&changed)
		var one, other testItem
		x := newIndex()
		x.Join(&one, whole())
		if got := one.Group().Has(changed); got != (name == "") {
			t.Errorf("%s: has it: %v", name, got)
		}
		if first := x.Join(&other, changed); first != (name != "") {
			t.Errorf("%s: the first of its group: %v", name, first)
		}
		if got := other.Group().Has(whole()); got != (name == "") {
			t.Errorf("%s: the other group has the first one's: %v", name, got)
		}
	}
}
