package plan

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// keeper is one pod that is to keep its policy while its sets change.
type keeper struct {
	*tenants
	id model.EndpointID
}

// pastRules are rules that do the same with what is in each set.
func pastRules(action model.Action, sets ...model.SetID) *model.PolicyRules {
	rules := &model.PolicyRules{Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "p"}}
	for i, id := range sets {
		rules.Rules = append(rules.Rules, model.MatchRule{Action: action, Index: i, Source: model.Side{In: []model.SetID{id}}})
	}
	return rules
}

// deniedSets are rules that deny what is in sets, and allow all else.
func deniedSets(sets ...model.SetID) *model.PolicyRules {
	rules := pastRules(model.Deny, sets...)
	rules.Rules = append(rules.Rules, model.MatchRule{Action: model.Allow, Index: len(sets)})
	return rules
}

func numbered(n int) (sets []model.SetID) {
	for i := range n {
		sets = append(sets, model.SetID(fmt.Sprint("s:", i)))
	}
	return sets
}

// update brings changes into force. The kernel refuses the first tables, if it is to; then plans
// that follow up are for the next update.
func (w *keeper) update(rules *model.PolicyRules, sets map[model.SetID]*model.SetChange, refuse bool) {
	ch := model.Changes{InSync: true, Sets: sets, Endpoints: map[model.EndpointID]*model.EndpointPolicy{}}
	if rules != nil {
		p := &model.DirectionPolicy{Direction: model.Ingress, Tiers: []model.TierPolicy{{Name: model.TierDefault, Default: model.Deny, Policies: []*model.PolicyRules{rules}}}}
		e := endpointPolicy("a", p, openEgress, "10.0.0.1")
		e.ID.Namespace, e.Iface = "shop", "calishopa"
		w.id, ch.Endpoints[e.ID] = e.ID, e
	}
	for more := true; more; ch = (model.Changes{InSync: true}) {
		plan := w.Update(ch)
		if failed := map[table.ID]error{}; refuse && len(plan.Tables) > 0 {
			for _, made := range plan.Tables {
				failed[made.ID] = errRefused
			}
			carryOut(w.k, w.Withhold(plan, failed))
			return
		}
		carryOut(w.k, plan)
		more = plan.More || plan.FollowUp
	}
	if refuse {
		w.t.Error("no table was made")
	}
}

var (
	pastDenied = netip.MustParsePrefix("20.0.0.1/32") // all endpoints are looked at when wider prefixes join a set
	leftOut    = map[model.SetID]*model.SetChange{"s:0": {Removed: []netip.Prefix{pastDenied}}}
)

// lacking is that the set of a definition is about to lack the prefix.
func lacking(definition string) map[model.SetID]*model.SetChange {
	return map[model.SetID]*model.SetChange{model.SetID(model.PrefixPast + definition): {Added: []netip.Prefix{pastDenied}}}
}

// A pod does not stay with rules of before whose sets come to lack something that the rules deny, whatever keeps its policy from coming into
// force: these would allow it then. It stays as it is if the rules refer to what is lacking, or allow less by the lack.
func TestRulesWhoseSetsLackWhatTheyDenyDoNotStay(t *testing.T) {
	const out = model.SetID(model.PrefixPast + "0")
	five, refused := numbered(5), &model.PolicyRules{Key: deniedSets().Key, Refused: "too much"}
	allowed := pastRules(model.Allow, five...)
	others := deniedSets(five[:4]...)
	others.Rules[4].Source.NotIn = []model.SetID{"s:4"}
	passes := pastRules(model.Pass, five...)
	for name, test := range map[string]struct {
		before, after *model.PolicyRules
		lacking       string
		bound         bool
	}{
		"too many sets":               {deniedSets(five...), deniedSets(append(five[:5:5], out)...), "0", false},
		"refused":                     {deniedSets(five...), refused, "0", false},
		"refused, and nothing lacks":  {deniedSets(five...), refused, "", true},
		"refused, and another lacks":  {deniedSets(five...), refused, "5", true},
		"refused, of several ports":   {deniedSets(append(five[:4:4], "n:port/6.80")...), refused, "port/6", false},
		"allows the set":              {allowed, refused, "0", true},
		"allows all but another set":  {others, refused, "4", false},
		"passes the set":              {passes, refused, "0", false},
		"it has the set already":      {deniedSets(append(five[:4:4], out)...), deniedSets(append(five[:5:5], out)...), "0", true},
		"it has the set, and is gone": {deniedSets(append(five[:4:4], out)...), refused, "0", true},
	} {
		for _, moment := range []string{"at once", "later", "after a restart", "while the kernel has no room", "after the kernel had no room"} {
			t.Run(name+"/"+moment, func(t *testing.T) {
				options := Options{Budget: Budget{Direction: Cost{Sets: 5}}, Confirm: true}
				w := &keeper{tenants: &tenants{New(options, nil), t, newKernel()}}
				w.k.refuses = true
				sets := map[model.SetID]*model.SetChange{"s:0": {Added: []netip.Prefix{pastDenied}}, "n:port/6.80": {}}
				for _, id := range five[1:] {
					sets[id] = &model.SetChange{}
				}
				w.update(test.before, sets, false)
				past := map[model.SetID]*model.SetChange{}
				if test.lacking != "" {
					past = lacking(test.lacking)
				}
				after := test.after
				if strings.Contains(moment, "kernel") {
					after = deniedSets(five[1:3]...) // of which it refuses the table
				}
				switch moment {
				case "at once":
					w.update(after, past, false)
				case "later":
					w.update(after, lacking("other"), false)
					w.update(nil, past, false)
				case "while the kernel has no room":
					w.update(after, past, true)
				case "after the kernel had no room":
					w.update(after, lacking("other"), true)
					w.update(nil, past, false)
				default:
					w.Compiler = New(options, w.k.snapshot(false))
					for id, change := range past {
						sets[id] = change
					}
					w.update(after, sets, false)
				}
				if w.k.bound[w.id].Endpoint != nil != test.bound { // before prefixes leave
					t.Errorf("bound is not %t", test.bound)
				}
				w.update(nil, leftOut, false)
				v, bound, err := w.k.judge(w.id, model.Ingress, model.Packet{Src: pastDenied.Addr(), Dst: netip.MustParseAddr("10.0.0.1"), Protocol: model.ProtoTCP, DstPort: 80})
				if err != nil || bound != test.bound || v.Allow && test.lacking == "0" {
					t.Errorf("bound %t, want %t; %+v, %v", bound, test.bound, v, err)
				}
			})
		}
	}
}

// The same policy comes into force if it can.
func TestRulesThatDenyWhatTheirSetsLackComeIntoForce(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		w := &keeper{tenants: &tenants{New(Options{Confirm: true}, nil), t, newKernel()}}
		w.k.refuses = true
		w.update(deniedSets("s:0"), map[model.SetID]*model.SetChange{"s:0": {Added: []netip.Prefix{pastDenied}}}, false)
		w.update(deniedSets("s:0", "out:0"), lacking("0"), refuse)
		w.update(nil, leftOut, false)
		v, bound, err := w.k.judge(w.id, model.Ingress, model.Packet{Src: pastDenied.Addr(), Dst: netip.MustParseAddr("10.0.0.1"), Protocol: model.ProtoTCP, DstPort: 80})
		if err != nil || bound == refuse || v.Allow {
			t.Errorf("refused by the kernel %t: bound %t, %+v, %v", refuse, bound, v, err)
		}
	}
}
