package bpfmaps

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/margay-project/margay/bpf"
)

var structs = cmpopts.IgnoreUnexported(bpf.Endpoint{}, bpf.Slot{})

func endpoint(ifindex uint32) bpf.Endpoint {
	return bpf.Endpoint{
		Ifindex: ifindex, Flags: bpf.EPReady, Id: 1000 + ifindex, PeerIfindex: 2, Mac: [6]uint8{2, 0, 0, 0, 0, 1}, Mtu: 1500,
		Ingress: PolicyWord(3, 4), Egress: PolicyWord(5, 6), Addr4: [4]uint8{10, 0, 0, 1},
		Addr6: [16]uint8{0xfd, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
	}
}

func mustEndpoints(t *testing.T, m *Maps) *Endpoints {
	t.Helper()
	e, err := m.OpenEndpoints()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// inKernel is what a program finds for ifindex: in its place, or else in the further one that the hash leads to.
func inKernel(t *testing.T, m *Maps, ifindex uint32) (ep bpf.Endpoint, ok bool) {
	t.Helper()
	place := ifindex & 0xffff
	if err := m.Map(bpf.MargayMapEndpoints).Lookup(&place, &ep); err != nil {
		t.Fatal(err)
	}
	if ep.Ifindex == ifindex {
		return ep, true
	}
	if m.Map(bpf.MargayMapEndpointPlaces).Lookup(&ifindex, &place) != nil {
		return ep, false
	}
	if err := m.Map(bpf.MargayMapEndpoints).Lookup(&place, &ep); err != nil {
		t.Fatal(err)
	}
	return ep, ep.Ifindex == ifindex
}

func TestEndpointsOfTheSamePlaceAreAllFound(t *testing.T) {
	m, _ := openMaps(t)
	e := mustEndpoints(t, m)
	indexes := []uint32{7, 7 + 1<<16, 7 + 2<<16, 8}
	for _, i := range indexes {
		if err := e.Set(endpoint(i)); err != nil {
			t.Fatal(err)
		}
	}
	check := func(e *Endpoints) {
		t.Helper()
		var want []bpf.Endpoint
		for _, i := range []uint32{7, 8, 7 + 1<<16, 7 + 2<<16} {
			want = append(want, endpoint(i))
			if got, ok := inKernel(t, m, i); !ok || !cmp.Equal(got, endpoint(i), structs) {
				t.Errorf("ifindex %d in the maps: %+v (%v)", i, got, ok)
			}
		}
		if diff := cmp.Diff(want, e.List(), structs); diff != "" {
			t.Error(diff)
		}
	}
	check(e)
	check(mustEndpoints(t, m)) // as after a restart
	// The place becomes free: those in further places stay there, and are changed there.
	if err := e.Remove(7); err != nil {
		t.Fatal(err)
	}
	if _, ok := inKernel(t, m, 7); ok {
		t.Error("7 is still there")
	}
	changed := endpoint(7 + 1<<16)
	changed.Mtu = 9000
	if err := e.Set(changed); err != nil {
		t.Fatal(err)
	}
	if got, ok := inKernel(t, m, changed.Ifindex); !ok || got.Mtu != 9000 {
		t.Errorf("after a change: %+v (%v)", got, ok)
	}
	if err := e.Set(endpoint(7)); err != nil {
		t.Fatal(err)
	}
	if err := e.Set(endpoint(7 + 1<<16)); err != nil {
		t.Fatal(err)
	}
	check(e)
	for _, i := range indexes {
		if err := e.Remove(i); err != nil {
			t.Fatal(err)
		}
		if _, ok := inKernel(t, m, i); ok {
			t.Errorf("%d is still there", i)
		}
	}
	if len(e.List()) != 0 {
		t.Errorf("left: %v", e.List())
	}
}

func TestAPolicyIsPublishedByItsWordAlone(t *testing.T) {
	m, _ := openMaps(t)
	e := mustEndpoints(t, m)
	for _, ifindex := range []uint32{9, 9 + 1<<16} {
		want := endpoint(ifindex)
		if err := e.Set(want); err != nil {
			t.Fatal(err)
		}
		for _, change := range []func(){
			func() { want.Egress = PolicyWord(77, 88) }, func() { want.Ingress = PolicyWord(78, 89) },
		} {
			before := want
			change()
			if stores := alteration(before, want); len(stores) != 1 || !stores[0].policy {
				t.Errorf("%d: a change of policy takes %d stores", ifindex, len(stores))
			}
			if err := e.Set(want); err != nil {
				t.Fatal(err)
			}
			if got, _ := inKernel(t, m, ifindex); !cmp.Equal(got, want, structs) {
				t.Errorf("got %+v", got)
			}
		}
	}
}

func TestChangeByHandIsSeenAfterReload(t *testing.T) {
	m, _ := openMaps(t)
	e := mustEndpoints(t, m)
	if err := e.Set(endpoint(5)); err != nil {
		t.Fatal(err)
	}
	alien := endpoint(6)
	if err := m.Map(bpf.MargayMapEndpoints).Update(uint32(6), &alien, ebpf.UpdateAny); err != nil {
		t.Fatal(err)
	}
	if err := e.Reload(); err != nil {
		t.Fatal(err)
	}
	if len(e.List()) != 2 {
		t.Errorf("%v", e.List())
	}
}

// anyEndpoint draws few values, so that fields often stay the same.
func anyEndpoint(t *rapid.T, name string) bpf.Endpoint {
	n := rapid.Uint8Range(0, 2)
	word := func(what string) uint32 { return uint32(n.Draw(t, name+what)) }
	return bpf.Endpoint{
		Ifindex: 3, Flags: word("flags"), Id: word("id"), PeerIfindex: word("peer"),
		Ingress: PolicyWord(word("slot"), word("gen")), Egress: PolicyWord(word("slot"), word("gen")),
		Mac: [6]uint8{n.Draw(t, name+"mac"), 5: n.Draw(t, name+"mac")}, Mtu: uint16(word("mtu")),
		Addr4: [4]uint8{n.Draw(t, name+"v4")}, Addr6: [16]uint8{n.Draw(t, name+"v6"), 15: n.Draw(t, name+"v6")},
	}
}

type shortcut struct {
	peer uint32
	mac  [6]uint8
	mtu  uint16
}

func shortcutOf(ep bpf.Endpoint) shortcut { return shortcut{ep.PeerIfindex, ep.Mac, ep.Mtu} }

// Whichever of the stores is the last one made, because a packet comes by or the agent dies: nothing passes that
// neither the old nor the new state lets pass, and what both let pass, passes.
func TestEveryPrefixOfStoresIsSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyEndpoint(t, "a."), anyEndpoint(t, "b.")
		for _, step := range []struct {
			name     string
			old, new bpf.Endpoint
			stores   []store
		}{
			{"create", bpf.Endpoint{}, a, creation(bpf.Endpoint{}, a)},
			{"change", a, b, alteration(a, b)},
			{"remove", b, bpf.Endpoint{}, removal(b)},
		} {
			p := step.old
			for i := range step.stores {
				carryOut(&p, step.stores[i:i+1])
				checkBetween(t, fmt.Sprintf("%s, store %d of %v", step.name, i, step.stores), step.old, step.new, p)
			}
			if p != step.new {
				t.Fatalf("%s: got %+v, want %+v", step.name, p, step.new)
			}
		}
	})
}

func TestEveryFieldCanChangeAlone(t *testing.T) {
	for _, a := range []bpf.Endpoint{endpoint(3), {Ifindex: 3}} {
		for word := wordFlags; word < endWord; word++ {
			for _, value := range []uint32{0, 1, 77} {
				b := a
				wordsOf(&b)[word] = value
				for _, step := range [][2]bpf.Endpoint{{a, b}, {b, a}} {
					got := step[0]
					carryOut(&got, alteration(step[0], step[1]))
					if got != step[1] {
						t.Errorf("word %d: from %+v got %+v, want %+v", word, step[0], got, step[1])
					}
					carryOut(&got, removal(got))
					if got != (bpf.Endpoint{}) {
						t.Errorf("word %d: removed, left %+v", word, got)
					}
				}
			}
		}
	}
}

func checkBetween(t *rapid.T, when string, old, want, p bpf.Endpoint) {
	if p.Flags&^(old.Flags|want.Flags) != 0 || old.Flags&want.Flags&^p.Flags != 0 {
		t.Fatalf("%s: flags %d between %d and %d", when, p.Flags, old.Flags, want.Flags)
	}
	if p.Ifindex != old.Ifindex && p.Ifindex != want.Ifindex {
		t.Fatalf("%s: ifindex %d", when, p.Ifindex)
	}
	ready := p.Ifindex != 0 && p.Flags&bpf.EPReady != 0
	if ready && p.Ingress != old.Ingress && p.Ingress != want.Ingress {
		t.Fatalf("%s: ready with ingress %x", when, p.Ingress)
	}
	if ready && p.Egress != old.Egress && p.Egress != want.Egress {
		t.Fatalf("%s: ready with egress %x", when, p.Egress)
	}
	if now := shortcutOf(p); now.peer != 0 && now != shortcutOf(old) && now != shortcutOf(want) {
		t.Fatalf("%s: shortcut to %+v", when, now)
	}
	if ready && old.Ifindex != want.Ifindex && p != old && p != want {
		t.Fatalf("%s: ready, but incomplete: %+v", when, p)
	}
}

func TestAnEndpointHasTheSizeOfItsPlace(t *testing.T) {
	if endpointSize != 64 {
		t.Errorf("an endpoint has %d bytes: the map's entries would not be where the array's are", endpointSize)
	}
}

// Another pod's link-local address under the number, and one that was noted while the MAC was not known.
func TestTheLinkLocalAddressOfAnInterfaceIsForgotten(t *testing.T) {
	m, _ := openMaps(t)
	e := mustEndpoints(t, m)
	place, claimed := uint32(7), bpf.MargayNeighbour{LinkLocal: 5}
	nameless := endpoint(7)
	nameless.Mac = [6]uint8{}
	other := endpoint(7)
	other.Mtu = 9000
	for _, step := range []struct {
		what string
		do   func() error
		kept bool
	}{
		{"created", func() error { return e.Set(nameless) }, false},
		{"written again", func() error { return e.Set(nameless) }, true},
		{"given a MAC", func() error { return e.Set(endpoint(7)) }, false},
		{"changed", func() error { return e.Set(other) }, true},
		{"removed", func() error { return e.Remove(7) }, true},
		{"created under the number", func() error { return e.Set(endpoint(7)) }, false},
		{"created at the place", func() error { return e.Set(endpoint(7 + 1<<16)) }, true},
	} {
		if err := m.Map(bpf.MargayMapNeighbours).Put(place, &claimed); err != nil {
			t.Fatal(err)
		}
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		var n bpf.MargayNeighbour
		if err := m.Map(bpf.MargayMapNeighbours).Lookup(&place, &n); err != nil {
			t.Fatal(err)
		}
		if kept := n.LinkLocal == claimed.LinkLocal; kept != step.kept {
			t.Errorf("%s: the address is kept: %v, want %v", step.what, kept, step.kept)
		}
	}
}

// An endpoint whose place in the arrays is another's has a record of neighbour discovery of its own, in its further place.
func TestAnEndpointWhosePlaceIsTakenHasItsOwnNeighbour(t *testing.T) {
	m, _ := openMaps(t)
	e := mustEndpoints(t, m)
	near, far := uint32(7), uint32(7+1<<16)
	nameless := endpoint(far)
	nameless.Mac = [6]uint8{}
	for _, ep := range []bpf.Endpoint{endpoint(near), nameless} {
		if err := e.Set(ep); err != nil {
			t.Fatal(err)
		}
	}
	var place uint32
	if err := m.Map(bpf.MargayMapEndpointPlaces).Lookup(&far, &place); err != nil || place < bpf.Endpoints {
		t.Fatalf("its place is %d (%v), want a further one", place, err)
	}
	neighbours := m.Map(bpf.MargayMapNeighbours)
	claimed := func(place uint32) uint64 {
		var n bpf.MargayNeighbour
		if err := neighbours.Lookup(&place, &n); err != nil {
			t.Fatal(err)
		}
		return n.LinkLocal
	}
	for _, at := range []uint32{near, place} {
		if err := neighbours.Put(at, &bpf.MargayNeighbour{LinkLocal: 5}); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Remove(near); err != nil {
		t.Fatal(err)
	}
	if claimed(place) != 5 {
		t.Error("it is forgotten when the other endpoint goes")
	}
	if err := e.Set(endpoint(far)); err != nil {
		t.Fatal(err)
	}
	if claimed(place) != 0 || claimed(near) != 5 {
		t.Error("the wrong one is forgotten when the MAC becomes known")
	}
	if err := errors.Join(neighbours.Put(place, &bpf.MargayNeighbour{LinkLocal: 5}), e.Remove(far)); err != nil {
		t.Fatal(err)
	}
	e.next = place - bpf.Endpoints
	if err := errors.Join(e.Set(endpoint(near)), e.Set(endpoint(far))); err != nil {
		t.Fatal(err)
	}
	if claimed(place) != 0 {
		t.Error("the next one in the place inherits it")
	}
}

// TestAnEntryThatLeadsNowhereIsRemovedWithItsInterface: a killed agent may leave one. An endpoint in its own place has the record of neighbour
// discovery of that place.
func TestAnEntryThatLeadsNowhereIsRemovedWithItsInterface(t *testing.T) {
	m, _ := openMaps(t)
	keys := m.Map(bpf.MargayMapEndpointPlaces)
	if err := keys.Put(uint32(7), bpf.Endpoints+5); err != nil {
		t.Fatal(err)
	}
	e := mustEndpoints(t, m)
	if err := e.Set(endpoint(7)); err != nil {
		t.Fatal(err)
	}
	var place uint32
	if err := keys.Lookup(uint32(7), &place); !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Errorf("it leads to place %d (%v)", place, err)
	}
	if got, ok := inKernel(t, m, 7); !ok || got.Ifindex != 7 {
		t.Errorf("the endpoint is %+v (%t)", got, ok)
	}
}

// TestFurtherPlacesAreUsedAgainLate: a packet may be in a program that has found the endpoint which was there. None is left over when all
// are taken, and a former agent's entries that lead nowhere take no room.
func TestFurtherPlacesAreUsedAgainLate(t *testing.T) {
	m, _ := openMaps(t)
	e := mustEndpoints(t, m)
	keys := m.Map(bpf.MargayMapEndpointPlaces)
	far := func(i uint32) uint32 { return 7 + (i+1)<<16 }
	if err := errors.Join(keys.Put(uint32(99), bpf.Endpoints+5), keys.Put(uint32(98), uint32(98)), e.Reload(), e.Set(endpoint(7))); err != nil {
		t.Fatal(err)
	}
	seen := map[uint32]bool{}
	for i := range bpf.FurtherEndpoints {
		if err := e.Set(endpoint(far(i))); err != nil {
			t.Fatalf("endpoint %d: %v", i, err)
		}
		var place uint32
		if err := keys.Lookup(far(i), &place); err != nil || seen[place] || place < bpf.Endpoints {
			t.Fatalf("place %d (%v), seen before: %t", place, err, seen[place])
		}
		seen[place] = true
		if i < bpf.FurtherEndpoints-1 {
			if err := e.Remove(far(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range bpf.FurtherEndpoints - 1 {
		if err := e.Set(endpoint(far(i))); err != nil {
			t.Fatalf("endpoint %d: %v", i, err)
		}
	}
	if err := e.Set(endpoint(far(bpf.FurtherEndpoints))); err == nil || !strings.Contains(err.Error(), "no place for interface") {
		t.Errorf("one more: %v", err)
	}
	if foreign, err := e.Foreign(); len(foreign) > 0 || err != nil {
		t.Errorf("foreign: %v (%v)", foreign, err)
	}
}

// TestAProgramFindsAnEndpointWhileItChanges, also in a further place.
func TestAProgramFindsAnEndpointWhileItChanges(t *testing.T) {
	m, _ := openMaps(t)
	e := mustEndpoints(t, m)
	ep := endpoint(7 + 1<<16)
	if err := errors.Join(e.Set(endpoint(7)), e.Set(ep)); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range uint32(20_000) {
			ep.Egress = PolicyWord(3, i)
			if err := e.Set(ep); err != nil {
				t.Error(err)
			}
		}
	}()
	for {
		if got, ok := inKernel(t, m, ep.Ifindex); !ok || got.Flags != bpf.EPReady {
			t.Fatalf("it is not found: %+v", got)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}
