package chains_test

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// largePolicy allows TCP from each of so many CIDRs to a port of its own, and from everywhere to so many other ports, no two of
// them next to each other.
func largePolicy(cidrs, ports int) *model.DirectionPolicy {
	tcp := model.ProtoTCP
	var rules []model.MatchRule
	for i := range cidrs {
		port := uint16(1 + 2*(i%32000))
		rules = append(rules, model.MatchRule{Protocol: &tcp, Source: model.Side{Nets: []netip.Prefix{cidr(i)}},
			Destination: model.Side{Ports: policytest.PortsOf(port, port)}})
	}
	if ports > 0 {
		var list []uint16
		for i := range ports {
			list = append(list, uint16(2+4*i), uint16(2+4*i))
		}
		rules = append(rules, model.MatchRule{Protocol: &tcp, Destination: model.Side{Ports: policytest.PortsOf(list...)}})
	}
	return policytest.OnePolicy(model.Ingress, rules...)
}

func cidr(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(64 + i>>16), byte(i >> 8), byte(i)}), 32)
}

// large is the table of such a policy, with the classes of its CIDRs.
func large(t testing.TB, cidrs, ports int) (*table.Table, []classes.Class) {
	n := policytest.NewNumbers()
	w := &policytest.World{Own: []netip.Addr{policytest.Own4, policytest.Own6}}
	prog := must(match.Expand(largePolicy(cidrs, ports), w, n))(t)
	known := []classes.Class{{ID: classes.None4, Family: 4}, {ID: classes.None6, Family: 6}}
	byPrefix := map[netip.Prefix]uint32{}
	for id, list := range prog.NetSets {
		byPrefix[list[0]] = n.Sets[id]
	}
	for i := range cidrs {
		known = append(known, classes.Class{ID: uint32(2 + i), Family: 4, Sets: []uint32{byPrefix[cidr(i)]}})
	}
	tab := table.Build(prog, classes.ListOf(known), table.Limits{})
	if tab == nil || tab.Interpreted() {
		t.Fatal("the policy has no table")
	}
	return tab, known
}

// wideOptions are for more classes than the default mask has room for.
func wideOptions(t testing.TB, shape chains.Shape) *chains.Options {
	return &chains.Options{Marks: must(chains.NewMarks(0xffff8000))(t), Names: chains.Names{World: chains.WorldA}, Family: 4, Shape: shape, MaxRules: 200_000}
}

var sizes = []struct{ cidrs, ports int }{{10_000, 0}, {0, 10_000}, {5_000, 5_000}, {10_000, 10_000}, {100, 10}}

func BenchmarkNewSlot(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("cidrs=%d,ports=%d", size.cidrs, size.ports), func(b *testing.B) {
			tab, known := large(b, size.cidrs, size.ports)
			o := wideOptions(b, chains.Legacy())
			var s *chains.Slot
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			for b.Loop() {
				s = must(chains.NewSlot(1, tab, known, o))(b)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1024, "kept-KiB")
			b.ReportMetric(float64(s.Rules()), "rules-at-most")
			runtime.KeepAlive(tab)
		})
	}
}

func BenchmarkChains(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("cidrs=%d,ports=%d", size.cidrs, size.ports), func(b *testing.B) {
			tab, known := large(b, size.cidrs, size.ports)
			s := must(chains.NewSlot(1, tab, known, wideOptions(b, chains.Legacy())))(b)
			var all book
			for b.Loop() {
				all = book{}
				all.set(s.Chains())
			}
			text := 0
			for _, c := range all {
				for _, r := range c.Rules {
					text += len(r)
				}
			}
			b.ReportMetric(float64(len(all)), "chains")
			b.ReportMetric(float64(total(all)), "rules")
			b.ReportMetric(float64(text)/1024, "text-KiB")
		})
	}
}

// One class comes and goes.
func BenchmarkSet(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("cidrs=%d,ports=%d", size.cidrs, size.ports), func(b *testing.B) {
			tab, known := large(b, size.cidrs, size.ports)
			s := must(chains.NewSlot(1, tab, known, wideOptions(b, chains.Legacy())))(b)
			c := known[len(known)-1]
			s.Chains()
			for b.Loop() {
				s.Forget(c.ID)
				must(s.Set(c))(b)
			}
		})
	}
}

func TestOneClassChangesFewChains(t *testing.T) {
	tab, known := large(t, 4000, 500)
	s := must(chains.NewSlot(1, tab, known, wideOptions(t, chains.Legacy())))(t)
	all := book{}
	all.set(s.Chains())
	for _, c := range []classes.Class{known[2], known[1500], known[len(known)-1]} {
		gone := s.Forget(c.ID)
		if n := len(gone.Set) + len(gone.Gone); n == 0 || n > 12 {
			t.Errorf("class %d goes: %d of %d chains differ", c.ID, n, len(all))
		}
		d := must(s.Set(c))(t)
		if n := len(d.Set) + len(d.Gone); n == 0 || n > 12 {
			t.Errorf("class %d comes: %d of %d chains differ", c.ID, n, len(all))
		}
		for _, c := range d.Set {
			if n := len(c.Rules); n > 100 {
				t.Errorf("chain %s has %d rules", c.Name, n)
			}
		}
	}
}

func TestLargePoliciesAreRefusedBeforeTheyAreMade(t *testing.T) {
	tab, known := large(t, 2000, 0)
	o := wideOptions(t, chains.Legacy())
	o.MaxRules = 1000
	_, err := chains.NewSlot(1, tab, known, o)
	var tooLarge *chains.TooLargeError
	if !errors.As(err, &tooLarge) || tooLarge.Need <= 1000 || tooLarge.Most != 1000 {
		t.Errorf("2,000 rules where 1,000 are allowed: %v", err)
	}
	s := must(chains.NewSlot(1, tab, known[:100], o))(t)
	before, refused := s.Rules(), 0
	for _, c := range known[100:] {
		if _, err := s.Set(c); err != nil {
			if !errors.As(err, &tooLarge) {
				t.Fatal(err)
			}
			refused++
		}
	}
	if refused == 0 || s.Rules() > 1000 || before > 1000 {
		t.Errorf("%d classes refused, %d rules", refused, s.Rules())
	}
	o = wideOptions(t, chains.Legacy())
	o.Marks = must(chains.NewMarks(chains.DefaultMask))(t)
	tab, known = large(t, 8190, 0)
	var wrong *chains.RangeError
	if _, err := chains.NewSlot(1, tab, known, o); !errors.As(err, &wrong) {
		t.Errorf("class 8191 where numbers end at 8191: %v", err)
	}
	if _, err := chains.NewSlot(1, tab, known[:len(known)-1], o); err != nil {
		t.Errorf("classes up to 8190: %v", err)
	}
}

func TestTooDeepGraphsAreRefused(t *testing.T) {
	tab, known := large(t, 10, 0)
	for _, shape := range []chains.Shape{{Bits: 4, Levels: 3, Depth: chains.NFTDepth}, {Bits: 5, Levels: 4, Depth: chains.NFTDepth}, {Bits: 5, Depth: chains.NFTDepth}} {
		_, err := chains.NewSlot(1, tab, known, wideOptions(t, shape))
		var tooDeep *chains.TooDeepError
		if !errors.As(err, &tooDeep) {
			t.Errorf("%+v: %v", shape, err)
		}
	}
}
