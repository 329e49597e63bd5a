package ipsets_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/nfnl"
)

func ensure(t testing.TB, k ipsets.Kernel, spec ipsets.Spec) *ipsets.Set {
	t.Helper()
	s := ipsets.NewSet(k, spec)
	if err := s.Ensure(); err != nil {
		t.Fatal(err)
	}
	return s
}

func apply(t testing.TB, s *ipsets.Set, changes ...ipsets.Change) {
	t.Helper()
	if n, err := s.Apply(changes); err != nil || n != len(changes) {
		t.Fatalf("made %d of %d: %v", n, len(changes), err)
	}
}

func resync(t testing.TB, s *ipsets.Set) ipsets.Repairs {
	t.Helper()
	r, err := s.Resync()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var class4 = ipsets.Spec{Name: "mgy-class", Type: ipsets.Net, Family: ipsets.IPv4, MaxEntries: 1000}

func TestEveryPrefixLengthEverUsedKeepsAnEntryOfNoEffect(t *testing.T) {
	eachKernel(t, func(t *testing.T, k ipsets.Kernel) {
		s := ensure(t, k, class4)
		apply(t, s, put(key("0.0.0.0/0"), 1), put(key("10.0.0.0/8"), 2), put(key("10.1.0.0/16"), 3), put(key("10.1.2.3/32"), 4))
		apply(t, s, remove(key("10.1.0.0/16")), remove(key("10.1.2.3/32")))
		want(t, k, s.Spec(), map[ipsets.Key]uint32{key("0.0.0.0/0"): 1, key("10.0.0.0/8"): 2, key("240.0.0.0/8"): 1, key("240.0.0.0/16"): 1, key("240.0.0.0/32"): 1})
		apply(t, s, put(key("0.0.0.0/0"), 5), put(key("240.0.0.0/8"), 6))
		want(t, k, s.Spec(), map[ipsets.Key]uint32{key("0.0.0.0/0"): 5, key("10.0.0.0/8"): 2, key("240.0.0.0/8"): 6, key("240.0.0.0/16"): 6, key("240.0.0.0/32"): 6})
		apply(t, s, remove(key("240.0.0.0/8")))
		want(t, k, s.Spec(), map[ipsets.Key]uint32{key("0.0.0.0/0"): 5, key("10.0.0.0/8"): 2, key("240.0.0.0/8"): 5, key("240.0.0.0/16"): 5, key("240.0.0.0/32"): 5})
		if got := slices.Collect(s.All()); len(got) != 2 {
			t.Errorf("anchors are among what is wanted: %v", got)
		}
		if r := resync(t, s); r.Len() != 0 {
			t.Errorf("%+v", r)
		}
	})
}

func TestPrefixesAreReadWithoutAnchors(t *testing.T) {
	eachKernel(t, func(t *testing.T, k ipsets.Kernel) {
		s := ensure(t, k, class4)
		for _, step := range []struct {
			change ipsets.Change
			want   string
		}{
			{put(key("10.0.0.0/8"), 2), "[10.0.0.0/8]"},
			{put(key("0.0.0.0/0"), 1), "[0.0.0.0/0 10.0.0.0/8]"},
			{put(key("240.0.0.0/8"), 3), "[0.0.0.0/0 10.0.0.0/8]"}, // 0.0.0.0/0 contains it
			{remove(key("0.0.0.0/0")), "[10.0.0.0/8 240.0.0.0/8]"},
			{put(key("128.0.0.0/1"), 4), "[10.0.0.0/8 128.0.0.0/1]"},
			{remove(key("10.0.0.0/8")), "[128.0.0.0/1]"},
		} {
			apply(t, s, step.change)
			got, err := ipsets.Prefixes(k, s.Spec())
			slices.SortFunc(got, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
			if fmt.Sprint(got) != step.want || err != nil {
				t.Errorf("after %v: %v, %v, want %s", step.change, got, err, step.want)
			}
		}
	})
}

func TestDamageIsFoundAndRepaired(t *testing.T) {
	eachKernel(t, func(t *testing.T, k ipsets.Kernel) {
		s := ensure(t, k, class4)
		apply(t, s, put(key("0.0.0.0/0"), 1), put(key("10.0.0.0/8"), 2), put(key("10.1.0.0/16"), 3))
		before := list(t, k, s.Spec())
		write(t, k, s.Spec(), remove(key("10.0.0.0/8")), put(key("10.1.0.0/16"), 9), put(key("10.7.0.0/17"), 9), remove(key("240.0.0.0/16")), put(key("128.0.0.0/1"), 8))
		differs(t, s, true)
		damage := ipsets.Repairs{Missing: 2, Changed: 2, Foreign: 1}
		got := resync(t, s)
		if got.Example = ""; got != damage {
			t.Errorf("resync: %+v", got)
		}
		before[key("240.0.0.0/17")] = 1 // the foreign entry's length
		want(t, k, s.Spec(), before)
		if r := resync(t, s); r.Len() != 0 {
			t.Errorf("again: %+v", r)
		}
		glance(t, s, true)
		differs(t, s, false)
		write(t, k, s.Spec(), put(key("10.0.0.0/8"), 7))
		glance(t, s, true)
		differs(t, s, true)
		resync(t, s)
		write(t, k, s.Spec(), remove(key("10.1.0.0/16")), put(key("10.2.0.0/16"), 3))
		glance(t, s, true)
		differs(t, s, true)
		resync(t, s)
		write(t, k, s.Spec(), remove(key("10.0.0.0/8")))
		glance(t, s, false)
		resync(t, s)
		if err := k.Destroy(class4.Name); err != nil {
			t.Fatal(err)
		}
		glance(t, s, false)
		differs(t, s, true)
		if _, err := s.Apply([]ipsets.Change{put(key("10.2.0.0/16"), 4)}); !errors.Is(err, ipsets.ErrNoSet) {
			t.Errorf("no set: %v", err)
		}
		if r := resync(t, s); !r.Created || r.Missing != len(before)+1 {
			t.Errorf("%+v", r)
		}
		want(t, k, s.Spec(), before)
	})
}

func glance(t testing.TB, s *ipsets.Set, want bool) {
	t.Helper()
	if same, err := s.Glance(); same != want || err != nil {
		t.Errorf("%t, %v; want %t", same, err, want)
	}
}

func differs(t testing.TB, s *ipsets.Set, want bool) {
	t.Helper()
	if does, err := s.Differs(); does != want || err != nil {
		t.Errorf("%t, %v; want %t", does, err, want)
	}
}

func TestASetOfOursIsAdoptedAndOneOfAnotherTypeReplaced(t *testing.T) {
	eachKernel(t, func(t *testing.T, k ipsets.Kernel) {
		s := ensure(t, k, class4)
		apply(t, s, put(key("10.0.0.0/8"), 1))
		successor := ensure(t, k, class4)
		want(t, k, successor.Spec(), map[ipsets.Key]uint32{key("240.0.0.0/8"): 0}) // the anchor of what was removed
		if err := k.Destroy(class4.Name); err != nil {
			t.Fatal(err)
		}
		other := class4
		other.Type = ipsets.NetInterface
		create(t, k, other)
		if h, err := k.Header(ensure(t, k, class4).Spec().Name); err != nil || h.Type != ipsets.Net {
			t.Errorf("%+v, %v", h, err)
		}
	})
}

func TestAReferredSetOfAnotherTypeIsAnError(t *testing.T) {
	k := ipsets.NewFake()
	other := class4
	other.Family = ipsets.IPv6
	create(t, k, other)
	if err := k.Refer(other.Name, 1); err != nil {
		t.Fatal(err)
	}
	if err := ipsets.NewSet(k, class4).Ensure(); !errors.Is(err, ipsets.ErrType) {
		t.Errorf("%v", err)
	}
}

// interrupted is a kernel whose first readings of a set end after one entry.
type interrupted struct {
	*ipsets.Fake
	readings int
}

func (k *interrupted) List(s ipsets.Spec, each func(ipsets.Entry)) error {
	k.readings--
	passed := 0
	err := k.Fake.List(s, func(e ipsets.Entry) {
		if passed++; k.readings < 0 || passed == 1 {
			each(e)
		}
	})
	if k.readings >= 0 {
		return &ipsets.Error{Op: "list", Set: s.Name, Err: nfnl.ErrInterrupted}
	}
	return err
}

func TestAnInterruptedReadingIsRepeated(t *testing.T) {
	k := &interrupted{Fake: ipsets.NewFake()}
	s := ensure(t, k, class4)
	apply(t, s, put(key("10.0.0.0/8"), 1), put(key("11.0.0.0/8"), 2), put(key("12.0.0.0/8"), 2))
	k.readings = 3
	if r := resync(t, s); r.Len() != 0 {
		t.Errorf("%+v", r)
	}
	k.readings = 100
	if _, err := s.Resync(); !errors.Is(err, nfnl.ErrInterrupted) {
		t.Errorf("%v", err)
	}
}

func TestAFullSetRefusesOneChangeAndAcceptsTheNextOnes(t *testing.T) {
	eachKernel(t, func(t *testing.T, k ipsets.Kernel) {
		spec := class4
		spec.MaxEntries = 2
		s := ensure(t, k, spec)
		var many []ipsets.Change
		room := int(s.Spec().MaxEntries) - 1 // but for the anchor
		for i := range room + 5 {
			many = append(many, put(ipsets.Key{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)}, 1))
		}
		n, err := s.Apply(many)
		if n != room || !errors.Is(err, ipsets.ErrFull) {
			t.Errorf("made %d, want %d: %v", n, room, err)
		}
		apply(t, s, remove(many[0].Key), many[room])
		if r := resync(t, s); r.Len() != 0 || s.Len() != room+1 {
			t.Errorf("%+v, %d entries", r, s.Len())
		}
	})
}

func TestSixtyFourInterfacesHaveOnePrefix(t *testing.T) {
	eachKernel(t, func(t *testing.T, k ipsets.Kernel) {
		s := ensure(t, k, ipsets.Spec{Name: "mgy-own", Type: ipsets.NetInterface, Family: ipsets.IPv4, MaxEntries: 1000})
		var many []ipsets.Change
		for i := range 66 {
			shared := key("10.0.0.0/8")
			shared.Interface = fmt.Sprint("cali", i)
			many = append(many, put(shared, 1))
		}
		if n, err := s.Apply(many); n != 64 || !errors.Is(err, ipsets.ErrCrowded) || errors.Is(err, ipsets.ErrFull) {
			t.Errorf("made %d, %v", n, err)
		}
		apply(t, s, remove(many[0].Key), many[64])
		if r := resync(t, s); r.Len() != 0 {
			t.Errorf("%+v", r)
		}
	})
}

func TestAWriteThatEndedInAnUnknownWayIsReadBack(t *testing.T) {
	k := ipsets.NewFake()
	s := ensure(t, k, class4)
	apply(t, s, put(key("0.0.0.0/0"), 1), put(key("10.0.0.0/8"), 1))
	lost := errors.New("the answer was lost")
	k.Refuse = func(_ string, c ipsets.Change) error {
		if c.Prefix.Addr() == netip.MustParseAddr("128.0.0.0") || c.Prefix.Bits() == 8 {
			return lost
		}
		return nil
	}
	for _, c := range []ipsets.Change{put(key("0.0.0.0/0"), 2), put(key("11.0.0.0/8"), 2)} {
		if n, err := s.Apply([]ipsets.Change{c}); n != 0 || !errors.Is(err, lost) {
			t.Errorf("made %d, %v", n, err)
		}
	}
	k.Refuse = nil
	apply(t, s, put(key("12.0.0.0/8"), 3))
	want(t, k, s.Spec(), map[ipsets.Key]uint32{key("0.0.0.0/0"): 1, key("10.0.0.0/8"): 1, key("12.0.0.0/8"): 3, key("240.0.0.0/8"): 1})
}

// losing is a kernel that makes the changes, and whose answer is lost.
type losing struct {
	*ipsets.Fake
	err error
}

func (l *losing) Write(spec ipsets.Spec, changes []ipsets.Change) (int, error) {
	n, err := l.Fake.Write(spec, changes)
	if l.err != nil {
		return 0, l.err
	}
	return n, err
}

func TestAWriteWhoseAnswerIsLostIsReadBack(t *testing.T) {
	k := &losing{Fake: ipsets.NewFake()}
	s := ensure(t, k, class4)
	apply(t, s, put(key("10.0.0.0/8"), 1))
	k.err = errors.New("the answer was lost")
	if n, err := s.Apply([]ipsets.Change{put(key("10.0.0.0/8"), 2)}); n != 0 || !errors.Is(err, k.err) {
		t.Errorf("made %d, %v", n, err)
	}
	k.err = nil
	apply(t, s, put(key("10.0.0.0/8"), 1)) // as it was: without reading back there is nothing to write
	want(t, k, s.Spec(), map[ipsets.Key]uint32{key("10.0.0.0/8"): 1, key("240.0.0.0/8"): 0})
}
