package calc

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

func TestPackedRulesComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := [2][]model.Rule{drawFullRules(t), drawFullRules(t)}
		texts, same := newRuleTexts(), map[string]*selector.Selector{}
		intern := func(s *selector.Selector) *selector.Selector {
			if same[s.String()] == nil {
				same[s.String()] = s
			}
			return same[s.String()]
		}
		got := pack(want, intern, &texts).lists()
		equal := cmp.Options{byValue, cmpopts.EquateEmpty(), cmp.Comparer((*selector.Selector).Equal)}
		if diff := cmp.Diff(want, got, equal); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// drawFullRules is drawRules with the fields that histories do not need.
func drawFullRules(t *rapid.T) []model.Rule {
	rules := drawRules(t)
	if len(rules) == 0 || rapid.Bool().Draw(t, "plain") {
		return rules
	}
	icmp := func(name string) *model.ICMPMatch {
		if !rapid.Bool().Draw(t, name) {
			return nil
		}
		m := &model.ICMPMatch{Type: rapid.Uint8().Draw(t, "type")}
		if rapid.Bool().Draw(t, "with code") {
			m.Code = new(rapid.Uint8().Draw(t, "code"))
		}
		return m
	}
	r := &rules[0]
	r.Index = rapid.IntRange(0, 1<<20).Draw(t, "index")
	r.IPVersion = oneOf(t, "version", uint8(0), 4, 6)
	if rapid.Bool().Draw(t, "not protocol") {
		r.NotProtocol = new(rapid.Uint8().Draw(t, "protocol"))
	}
	r.ICMP, r.NotICMP = icmp("icmp"), icmp("not icmp")
	r.Name = oneOf(t, "name", "", "allow-dns")
	r.Unmatchable = oneOf(t, "unmatchable", "", "http")
	if rapid.Bool().Draw(t, "nodes") {
		r.Destination.Nodes = selector.Equal("zone", "a")
	}
	r.Source.NotPorts = []model.PortRange{{Lo: 0, Hi: 65535}, {Lo: 300, Hi: 300}}
	return rules
}

// Every field of a rule is packed: one that is added to the model must be added there, too.
func TestPackKnowsEveryField(t *testing.T) {
	for _, test := range []struct {
		of   any
		want int
	}{{model.Rule{}, 11}, {model.Entity{}, 10}, {model.ICMPMatch{}, 2}, {model.PortRange{}, 2}, {model.ServiceKey{}, 2}, {model.Policy{}, 10}, {model.Profile{}, 3}} {
		if n := reflect.TypeOf(test.of).NumField(); n != test.want {
			t.Errorf("%T has %d fields, and %d are packed", test.of, n, test.want)
		}
	}
}

// Rules are kept packed, whether or not they apply on this node, and share the selectors that an index has.
func TestRulesShareTheSelectorsOfTheIndexes(t *testing.T) {
	twice := policyOf("here", "app == 'web'", fromSelector("app == 'client'"))
	same := policyOf("here-too", "app == 'web'", fromSelector("app == 'client'"))
	r := newRig(t, pod("a/p1", "10.0.0.1", label("app", "web")), twice, same,
		policyOf("elsewhere", "app == 'db'", fromSelector("app == 'db'")))
	packed := func(name string) packedRules {
		p := r.graph.policies.Get(gnp(name))
		if p.source.text == nil || p.source.first == nil || p.source.more != nil {
			t.Fatalf("%s: kept as %+v", name, p.source)
		}
		return p.source
	}
	if got, want := packed("elsewhere").first, r.graph.policies.Get(gnp("elsewhere")).selection.Selector(); got != want {
		t.Errorf("selectors %p and %p of one policy", got, want)
	}
	if a, b := packed("here").first, packed("here-too").first; a != b {
		t.Errorf("selectors %p and %p of two policies that apply", a, b)
	}
	// The rules are built of what is kept when the policy begins to apply.
	r.apply(pod("a/p2", "10.0.0.2", label("app", "db")), pod("a/p3", "10.0.0.3", label("app", "client")))
	packed("elsewhere")
	if rs := r.graph.policies.Get(gnp("elsewhere")).active.ruleset(model.Ingress); rs == nil || len(rs.rules.Rules) != 1 {
		t.Errorf("built: %+v", rs)
	}
	if r.apply(model.Absent(pod("a/p2", ""))); r.graph.policies.Get(gnp("elsewhere")).active != nil {
		t.Error("rules that apply to no endpoint of this node are built")
	}
	packed("elsewhere")
}

// Policies that say the same of other pods share the text of their rules. It goes with the last of them.
func TestEqualRulesShareTheirText(t *testing.T) {
	r := newRig(t,
		policyOf("a", "app == 'a'", fromSelector("app == 'a'"), fromSelector("app == 'a'"), fromSelector("app == 'x'"), fromSelector("app == 'a'")),
		policyOf("b", "app == 'b'", fromSelector("app == 'b'"), fromSelector("app == 'b'"), fromSelector("app == 'y'"), fromSelector("app == 'b'")))
	texts := &r.graph.texts
	builtin := 1 // that of the profile which is always there
	a, b := r.graph.policies.Get(gnp("a")).source, r.graph.policies.Get(gnp("b")).source
	if a.text != b.text || a.text.users != 2 || texts.Len() != builtin+1 || len(*a.more) != 2 {
		t.Fatalf("%+v and %+v, %d texts", a, b, texts.Len())
	}
	var got []string
	for _, rule := range b.lists()[model.Ingress] {
		got = append(got, rule.Source.Selector.String())
	}
	if d := cmp.Diff([]string{`app == "b"`, `app == "b"`, `app == "y"`, `app == "b"`}, got); d != "" {
		t.Error(d)
	}
	r.apply(policyOf("b", "app == 'b'", fromSelector("app == 'b'")))
	if texts.Len() != builtin+2 || a.text.users != 1 {
		t.Errorf("%d texts, one with %d users", texts.Len(), a.text.users)
	}
	r.apply(model.Absent(policyOf("a", "")), model.Absent(policyOf("b", "")))
	if texts.Len() != builtin {
		t.Errorf("%d texts are left", texts.Len())
	}
	profile := model.ProfileUpdate{Name: "p", Profile: &model.Profile{Ingress: []model.Rule{{Action: model.Deny}}}}
	if r.apply(profile, profile); texts.Len() != builtin+1 {
		t.Errorf("%d texts with a profile's", texts.Len())
	}
	if r.apply(model.Absent(profile)); texts.Len() != builtin {
		t.Errorf("%d texts are left of a profile", texts.Len())
	}
}
