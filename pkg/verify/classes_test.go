package verify

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

// Between the beginning of a round and its end, sets come and go, and their numbers name others. A class differs only by a set that was
// there under its number all the time.
func TestClassesDifferBySetsThatStay(t *testing.T) {
	const a, b model.SetID = "a", "b"
	in, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.1.1")
	members := map[model.SetID][]netip.Addr{a: {in}}
	contains := func(id model.SetID, addr netip.Addr) bool { return slices.Contains(members[id], addr) }
	listed := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}
	for what, test := range map[string]struct {
		addr   netip.Addr
		kernel []uint32 // sets of the class
		now    []Set
		want   model.SetID // "": no difference
	}{
		"the kernel lacks the set":             {in, nil, []Set{{Number: 1, ID: a}}, a},
		"the kernel has the set too much":      {other, []uint32{1}, []Set{{Number: 1, ID: a}}, a},
		"both have the set":                    {in, []uint32{1}, []Set{{Number: 1, ID: a}}, ""},
		"neither has the set":                  {other, nil, []Set{{Number: 1, ID: a}}, ""},
		"the kernel lacks a listed set":        {in, nil, []Set{{Number: 1, ID: a, Members: listed}}, a},
		"the kernel has a listed set too much": {other, []uint32{1}, []Set{{Number: 1, ID: a, Members: listed}}, a},
		"both have the listed set":             {in, []uint32{1}, []Set{{Number: 1, ID: a, Members: listed}}, ""},
		"the set has gone":                     {other, []uint32{1}, nil, ""},
		"the set has another number":           {in, []uint32{1}, []Set{{Number: 7, ID: a}}, ""},
		"its number is another set's":          {in, nil, []Set{{Number: 1, ID: b, Members: listed}}, ""},
		"another set has come":                 {in, nil, []Set{{Number: 2, ID: b, Members: listed}}, ""},
		"one has gone and one differs":         {in, []uint32{3}, []Set{{Number: 1, ID: a}, {Number: 3, ID: b}}, a},
	} {
		atoms := NewAtoms()
		atoms.AddSet(a)
		c := NewClasses(atoms, []Set{{Number: 1, ID: a}})
		id, is := c.Differs(test.addr, test.kernel, test.now, contains)
		if id != test.want || is != (test.want != "") {
			t.Errorf("%s: differs by %q (%v), want %q", what, id, is, test.want)
		}
	}
}

// A pair is compared by the sets that were there when the round began. The kernel has others in its classes while they come and go.
func TestClassesAreWrongBySetsOfTheRound(t *testing.T) {
	atoms := NewAtoms()
	for _, id := range []model.SetID{"a", "b"} {
		atoms.AddSet(id)
	}
	// c is no atom: no policy of the round refers to it.
	c := NewClasses(atoms, []Set{{Number: 1, ID: "a"}, {Number: 2, ID: "b"}, {Number: 3, ID: "c"}})
	pair := &Pair{Signature: []uint32{atoms.sets["b"], atoms.sets["a"]}}
	for _, test := range []struct {
		kernel []uint32
		wrong  bool
	}{
		{[]uint32{1, 2}, false}, {[]uint32{1, 2, 3}, false}, {[]uint32{1, 2, 9}, false},
		{[]uint32{1}, true}, {[]uint32{2, 3}, true}, {nil, true},
	} {
		if got := c.Wrong(pair, test.kernel); got != test.wrong {
			t.Errorf("the kernel has sets %v: wrong %v, want %v", test.kernel, got, test.wrong)
		}
	}
}
