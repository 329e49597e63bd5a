package verify

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/model"
)

// worldSets are the sets of a World as explain asks for them.
type worldSets struct{ *policytest.World }

func (w worldSets) SetContains(id model.SetID, a netip.Addr) bool { return w.Has(id, a) }
func (worldSets) SetText(model.SetID) (string, bool)              { return "", false }

func placeIn(w *policytest.World, a netip.Addr) place {
	return place{a, func(id model.SetID) bool { return w.Has(id, a) }, func(n netip.Prefix) bool { return n.Contains(a) }}
}

func (d *demand) ids(points []int) (ids []model.RuleID) {
	for _, p := range points {
		ids = append(ids, d.points[p])
	}
	return ids
}

// TestDemandIsWhatExplainSays: rules are matched here in two parts, and give the verdict of the walk by which people are
// answered.
func TestDemandIsWhatExplainSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, p := policytest.DrawWorld(t), policytest.DrawPolicy(t)
		d := newDemand(p)
		for range 20 {
			pkt := policytest.DrawPacket(t, w, p.Direction)
			remote, own := placeIn(w, pkt.Src), placeIn(w, pkt.Dst)
			if p.Direction == model.Egress {
				remote, own = own, remote
			}
			row := d.fitting(func(r *model.MatchRule) bool { return addrFits(d.remote(r), remote) && addrFits(d.own(r), own) })
			column := d.fitting(func(r *model.MatchRule) bool {
				return protocolFits(r, &pkt, Family(pkt.Src)) &&
					portsFit(&r.Source, pkt.Protocol, pkt.SrcPort, d.membership(model.Ingress, own)) &&
					portsFit(&r.Destination, pkt.Protocol, pkt.DstPort, d.membership(model.Egress, own))
			})
			var v verdict
			d.judge(0, row, column, func(r *model.MatchRule) bool {
				port := pkt.SrcPort
				if p.Direction == model.Egress {
					port = pkt.DstPort
				}
				return portsFit(d.remote(r), pkt.Protocol, port, remote.in)
			}, &v)
			got := model.Verdict{Allow: v.allow, By: d.points[v.by], Passed: d.ids(v.passes), Logged: d.ids(v.logs)}
			want := explain.Walk(p, pkt, worldSets{w}).Verdict
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%+v (-want +got):\n%s", pkt, diff)
			}
		}
	})
}
