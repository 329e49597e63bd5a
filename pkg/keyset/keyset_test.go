package keyset

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"
)

type thing struct {
	name  string
	value int
}

func newThings() Set[string, thing] { return New(func(t *thing) string { return t.name }) }

// A set says what a map does, whatever came and went before.
func TestSetIsLikeAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set, model := newThings(), map[string]*thing{}
		names := rapid.IntRange(1, 100).Draw(t, "names")
		for i := range rapid.IntRange(0, 400).Draw(t, "steps") {
			name := fmt.Sprint(rapid.IntRange(0, names-1).Draw(t, "name"))
			if rapid.Bool().Draw(t, "put") {
				v := &thing{name, i}
				set.Put(v)
				model[name] = v
			} else {
				set.Delete(name)
				delete(model, name)
			}
			if set.Len() != len(model) || set.Get(name) != model[name] {
				t.Fatalf("step %d: %d values and %v of %q, want %d and %v", i, set.Len(), set.Get(name), name, len(model), model[name])
			}
		}
		all := map[string]*thing{}
		for v := range set.All() {
			if all[v.name] != nil {
				t.Errorf("%q is yielded twice", v.name)
			}
			all[v.name] = v
		}
		if !maps.Equal(all, model) {
			t.Errorf("has %v, want %v", all, model)
		}
	})
}

// While values are yielded, others may go and come.
func TestAllWhileValuesGoAndCome(t *testing.T) {
	for _, change := range []string{"delete", "put", "both"} {
		set := newThings()
		for i := range 1000 {
			set.Put(&thing{fmt.Sprint(i), i})
		}
		gone, seen := map[string]bool{}, map[string]bool{}
		for v := range set.All() {
			if gone[v.name] || seen[v.name] {
				t.Fatalf("%s: %q is yielded after it was deleted (%v) or again", change, v.name, gone[v.name])
			}
			seen[v.name] = true
			if change != "put" {
				for i := range 3 {
					other := fmt.Sprint((v.value + i) % 1000)
					gone[other] = true
					set.Delete(other)
				}
			}
			if change != "delete" && v.value < 1000 {
				set.Put(&thing{fmt.Sprint(1000 + v.value), 1000 + v.value})
			}
		}
		for i := range 1000 {
			if name := fmt.Sprint(i); !gone[name] && !seen[name] {
				t.Errorf("%s: %q was there all the time and is not yielded", change, name)
			}
		}
	}
}

// Values that come and go for long leave neither memory nor long searches behind.
func TestTurnoverLeavesNothing(t *testing.T) {
	set := newThings()
	for i := range 100_000 {
		set.Put(&thing{fmt.Sprint(i), i})
		if set.Delete(fmt.Sprint(i - 100)); len(set.slots) > 400 {
			t.Fatalf("%d slots of %d values after %d", len(set.slots), set.Len(), i)
		}
	}
	for i := range 100_000 {
		set.Put(&thing{fmt.Sprint("many-", i), i})
	}
	if n := len(set.slots); n > 175_000 {
		t.Errorf("%d slots of %d values", n, set.Len())
	}
	for i := range 99_990 {
		set.Delete(fmt.Sprint("many-", i))
	}
	if n := len(set.slots); n > 1000 {
		t.Errorf("%d slots of %d values", n, set.Len())
	}
	for v := range set.All() {
		set.Delete(v.name)
	}
	if set.Len() != 0 || set.slots != nil {
		t.Errorf("%d values and %d slots are left", set.Len(), len(set.slots))
	}
}

func BenchmarkGet(b *testing.B) {
	const many = 1 << 18
	set := newThings()
	keys := make([]string, many)
	for i := range keys {
		keys[i] = fmt.Sprint("key-", i)
		set.Put(&thing{keys[i], i})
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if set.Get(keys[i*7919%many]) == nil {
			b.Fatal("a value is missing")
		}
	}
}
