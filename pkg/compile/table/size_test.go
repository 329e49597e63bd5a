package table

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

// sizedPolicy is one policy of n rules: every other one allows a TCP port or range of its own, the others a set of
// addresses, some of them on one port. There are 300 classes, each in one to four of the sets.
func sizedPolicy(n int) (*model.DirectionPolicy, func(*policytest.Numbers) []classes.Class) {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	tcp := model.ProtoTCP
	rules := make([]model.MatchRule, n)
	portOf := rng.Perm(60000)
	for i := range rules {
		r := model.MatchRule{Action: model.Allow, Index: i}
		if i%10 == 9 {
			r.Action = model.Deny
		}
		if i%2 == 0 {
			port := uint16(1 + portOf[i])
			r.Protocol = &tcp
			r.Destination.Ports = &model.PortMatch{Ranges: []model.PortRange{{Lo: port, Hi: port + uint16(i%3)}}}
		} else {
			r.Source.In = []model.SetID{setOf(i / 2)}
			if i%4 == 1 {
				r.Protocol = &tcp
				r.Destination.Ports = &model.PortMatch{Ranges: []model.PortRange{{Lo: 443, Hi: 443}}}
			}
		}
		rules[i] = r
	}
	p := &model.DirectionPolicy{Tiers: []model.TierPolicy{{Name: "default", Default: model.Deny, Policies: []*model.PolicyRules{
		{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "sized"}, Rules: rules},
	}}}}
	return p, func(num *policytest.Numbers) []classes.Class {
		var out []classes.Class
		for id := range uint32(300) {
			c := classes.Class{ID: id + 2, Family: 4}
			for range 1 + rng.IntN(4) {
				c.Sets = append(c.Sets, num.Set(setOf(rng.IntN(n/2))))
			}
			slices.Sort(c.Sets)
			c.Sets = slices.Compact(c.Sets)
			out = append(out, c)
		}
		return out
	}
}

func setOf(i int) model.SetID { return model.SetID(fmt.Sprintf("set%d", i)) }

func sized(tb testing.TB, n int) (*match.Program, []classes.Class) {
	tb.Helper()
	policy, known := sizedPolicy(n)
	num := policytest.NewNumbers()
	prog, err := match.Expand(policy, oneAddress, num)
	if err != nil {
		tb.Fatal(err)
	}
	return prog, known(num)
}

func TestTablesStayWithinTheirSizes(t *testing.T) {
	for _, c := range []struct{ rules, most int }{{100, 96 << 10}, {10000, 512 << 10}} {
		prog, known := sized(t, c.rules)
		table := Build(prog, classes.ListOf(known), Limits{})
		t.Logf("%d rules: %d bytes, slot %+v; %d pages, %d row blocks, %d cell blocks, %d outcomes",
			c.rules, table.Bytes(), table.Slot, len(table.L4), len(table.RowBlk), len(table.Cells), len(table.Outcomes))
		if table.Interpreted() {
			t.Errorf("%d rules: interpreted", c.rules)
		}
		if table.Bytes() > c.most {
			t.Errorf("%d rules: %d bytes, more than %d", c.rules, table.Bytes(), c.most)
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10000} {
		prog, known := sized(b, n)
		b.Run(fmt.Sprint(n, " rules"), func(b *testing.B) {
			all := classes.ListOf(known)
			b.ReportAllocs()
			for b.Loop() {
				Build(prog, all, Limits{})
			}
		})
	}
}

func BenchmarkExpand(b *testing.B) {
	for _, n := range []int{100, 10000} {
		policy, _ := sizedPolicy(n)
		b.Run(fmt.Sprint(n, " rules"), func(b *testing.B) {
			num := policytest.NewNumbers()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := match.Expand(policy, oneAddress, num); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// oneAddress is a Local whose endpoint is in no set.
var oneAddress = &policytest.World{Own: []netip.Addr{policytest.Own4, policytest.Own6}}
