package calc

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/model"
)

// twins are the same sets twice: with whole contributions, and with each member counted.
type twins struct {
	listed, counted *setTable
	of              [2]*definition
	objects         []*contribution // of which sets may have some
	in              map[portKey]map[*contribution]int
	said            map[*model.SetChange]model.SetChange // what the changes of listed sets were when they were returned
}

func newTwins(t *rapid.T) *twins {
	w := &twins{listed: newSetTable(), counted: newSetTable(), in: map[portKey]map[*contribution]int{}, said: map[*model.SetChange]model.SetChange{}}
	for i, k := range []kind{kindServicePort, kindNamedPort} {
		w.of[i] = &definition{key: definitionKey{kind: k}, sets: map[portKey]*set{}}
	}
	for range rapid.IntRange(1, 5).Draw(t, "objects") {
		few := rapid.SliceOfN(rapid.SampledFrom(nets("10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32", "10.0.0.0/30", "fd00::1/128", "fd00::/64")), 1, 6).Draw(t, "prefixes")
		many := rapid.SliceOfN(rapid.ByteRange(1, 50), 0, 50).Draw(t, "addresses")
		all := slices.Clone(few)
		for _, i := range many {
			all = append(all, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, i}), 32))
		}
		w.objects = append(w.objects, w.listed.contribution(all))
	}
	return w
}

// contribute adds delta to how often sets have what an object contributes.
func (w *twins) contribute(port portKey, c *contribution, delta int32) {
	if w.in[port] == nil {
		w.in[port] = map[*contribution]int{}
	}
	if w.in[port][c]+int(delta) < 0 {
		return
	}
	w.in[port][c] += int(delta)
	w.listed.contribute(w.listed.setOf(w.of[0], port), c, delta)
	for _, p := range c.prefixes {
		w.counted.count(w.counted.setOf(w.of[1], port), p, delta)
	}
}

// drop drops the sets of a port, which have their last members in the next changes.
func (w *twins) drop(port portKey) {
	for i, x := range []*setTable{w.listed, w.counted} {
		if s := w.of[i].sets[port]; s != nil {
			x.drop(s)
			delete(w.of[i].sets, port)
		}
	}
	delete(w.in, port)
}

func (w *twins) flush(t *rapid.T) {
	got, want := map[model.SetID]*model.SetChange{}, map[model.SetID]*model.SetChange{}
	for id, c := range w.listed.changes() {
		got[id] = &model.SetChange{Added: orNil(c.Added), Removed: orNil(c.Removed), Gone: c.Gone}
		w.said[c] = model.SetChange{Added: slices.Clone(c.Added), Removed: slices.Clone(c.Removed), Gone: c.Gone}
	}
	all := w.counted.changes()
	for port := range w.ports() {
		if c := all[w.of[1].key.id(port)]; c != nil {
			want[w.of[0].key.id(port)] = c
		}
	}
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("other changes (-counted +listed):\n%s", cmp.Diff(want, got, byValue))
	}
	if n := len(w.listed.touched); n > 0 {
		t.Fatalf("%d sets are touched after a flush", n)
	}
}

func (w *twins) ports() map[portKey]bool {
	return map[portKey]bool{{protocol: 6, port: 1}: true, {protocol: 6, port: 2}: true, {protocol: 6, port: 3}: true}
}

// compare fails if views of the sets differ. It changes what their callers own.
func (w *twins) compare(t *rapid.T) {
	if a, b := w.of[0].livePorts(), w.of[1].livePorts(); !slices.Equal(a, b) {
		t.Fatalf("sets with members: %v, counted %v", a, b)
	}
	for port, s := range w.of[0].sets {
		c := w.of[1].sets[port]
		mine, want := s.sorted(), c.sorted()
		if !slices.Equal(mine, want) || s.len() != c.len() || len(s.all()) != c.len() {
			t.Fatalf("members %v (%d), counted %v", mine, s.len(), want)
		}
		for i := range mine {
			mine[i] = netip.Prefix{}
		}
		clear(s.all())
		for _, a := range addrs("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "fd00::1", "fd00::2", "fd01::") {
			if s.contains(a) != c.contains(a) {
				t.Fatalf("%s in %v: %v", a, want, s.contains(a))
			}
		}
	}
}

// Sets with whole contributions say and have what sets with counted members do, whatever overlaps, and what they have said stays as it was.
func TestListedSetsAreLikeCountedOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newTwins(t)
		ports := rapid.SampledFrom([]portKey{{protocol: 6, port: 1}, {protocol: 6, port: 2}, {protocol: 6, port: 3}})
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"add", "add", "add", "remove", "remove", "flush", "flush", "restate", "drop"}).Draw(t, "step") {
			case "add":
				w.contribute(ports.Draw(t, "port"), rapid.SampledFrom(w.objects).Draw(t, "object"), 1)
			case "remove":
				w.contribute(ports.Draw(t, "port"), rapid.SampledFrom(w.objects).Draw(t, "object"), -1)
			case "restate":
				w.listed.restate()
				w.counted.restate()
			case "drop":
				w.drop(ports.Draw(t, "port"))
				w.flush(t) // no set comes back before
			case "flush":
				w.flush(t)
				w.compare(t)
			}
		}
		w.flush(t)
		w.compare(t)
		for now, then := range w.said {
			if !slices.Equal(now.Added, then.Added) || !slices.Equal(now.Removed, then.Removed) {
				t.Fatalf("a change that was %v became %v", then, *now)
			}
		}
	})
}

// The ports of an EndpointSlice share what is said of their sets: it takes as long for many as for few.
func TestPortsOfAnEndpointSliceShareTheirMembers(t *testing.T) {
	r := newRig(t, pod("shop/a", "10.0.0.1"), toService(model.Allow, "shop/s"), backendsOf("shop/s", "a", 1, 10, 5))
	ports, addresses := backendsOf("shop/s", "a", 1, 10, 5), backendsOf("shop/s", "a", 1, 10, 5)
	for i := range ports.Slice.Ports {
		ports.Slice.Ports[i].Port += 100
	}
	addresses.Slice.Ports, addresses.Slice.Addrs[3], addresses.Slice.Addrs[7] = ports.Slice.Ports, netip.MustParseAddr("2.0.0.1"), netip.MustParseAddr("2.0.0.2")
	for _, change := range []struct {
		what             string
		to               model.EndpointSliceUpdate
		sets, one, lists int
	}{{"ports", ports, 10, 10, 1}, {"addresses", addresses, 6, 2, 2}} { // that without a port changes with the addresses
		lists := map[*netip.Prefix]int{}
		sets := r.apply(change.to).Sets
		for _, c := range sets {
			for _, l := range [][]netip.Prefix{c.Added, c.Removed} {
				if len(l) == change.one {
					lists[&l[0]]++
				} else if len(l) > 0 {
					t.Errorf("%s: a change has %d members", change.what, len(l))
				}
			}
		}
		if len(sets) != change.sets || len(lists) != change.lists {
			t.Errorf("%s: %d sets and %d lists, want %d and %d", change.what, len(sets), len(lists), change.sets, change.lists)
		}
	}
}

// The list of an EndpointSlice is there while a rule needs it, whether for its ports or for its addresses alone.
func TestListsOfEndpointSlicesGoWithTheLastRule(t *testing.T) {
	egress, ingress := toService(model.Allow, "shop/s"), toService(model.Allow, "shop/s")
	egress.Policy.Ingress, ingress.Policy.Egress = nil, nil
	slice := backendsOf("shop/s", "a", 1, 10, 2)
	r := newRig(t, pod("shop/a", "10.0.0.1"), slice)
	for _, step := range []struct {
		update model.Update
		want   bool
	}{{toService(model.Allow, "shop/s"), true}, {egress, true}, {backendsOf("shop/s", "a", 1, 9, 2), true}, {model.Absent(egress), false},
		{toService(model.Allow, "shop/s"), true}, {ingress, true}, {slice, true}, {model.Absent(ingress), false}} {
		r.apply(step.update)
		if got := r.graph.sets.services.backends.slices[slice.ID].contributed != nil; got != step.want {
			t.Errorf("after %+v there is a list: %v", step.update, got)
		}
	}
}
