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
