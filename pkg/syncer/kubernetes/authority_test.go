package kubernetes

import "testing"

// looked is the evidence of one look at GlobalNetworkPolicies and Tiers.
func looked(firstPolicies, secondPolicies, firstTiers, secondTiers []string) (e evidence) {
	e.note("GlobalNetworkPolicy", firstPolicies, secondPolicies)
	e.note("Tier", firstTiers, secondTiers)
	return e
}

func TestTheFirstGroupIsReadWhenItHasWhatTheSecondHas(t *testing.T) {
	var none []string
	one, two := []string{"a"}, []string{"b", "a"}
	for name, tt := range map[string]struct {
		e     evidence
		lack  string
		start authority
	}{
		"neither has any":             {looked(none, none, none, none), "any cluster-wide object", readsSecond},
		"only the first":              {looked(none, none, one, none), "", readsFirst},
		"only the second":             {looked(none, none, none, one), "Tier a", readsSecond},
		"the same":                    {looked(one, one, two, two), "", readsFirst},
		"the first has more":          {looked(two, one, one, one), "", readsFirst},
		"a part is copied":            {looked(one, two, two, two), "GlobalNetworkPolicy b", readsSecond},
		"one kind is copied":          {looked(two, two, none, one), "Tier a", readsSecond},
		"other names":                 {looked(none, none, []string{"b"}, one), "Tier a", readsSecond},
		"the tier in a policy's name": {looked([]string{"default.a"}, one, none, none), "", readsFirst},
		"no policy's name":            {looked(none, none, []string{"default.a"}, one), "Tier a", readsSecond},
	} {
		if lack, start := tt.e.lack(), undecided.after(tt.e); lack != tt.lack || start != tt.start {
			t.Errorf("%s: lacks %q, authority %d; want %q and %d", name, lack, start, tt.lack, tt.start)
		}
	}
}

func TestARefusalDecidesOnlyIfAllElseIsTheSame(t *testing.T) {
	var none []string
	one, two := []string{"a"}, []string{"b", "a"}
	for name, tt := range map[string]struct {
		first, second []string
		decides       bool
	}{
		"neither has any":     {none, none, false},
		"the same":            {two, two, true},
		"the first has more":  {two, one, false},
		"the second has more": {one, two, false},
		"only the first":      {one, none, false},
	} {
		e := looked(none, none, tt.first, tt.second)
		if got := e.refused("tier.x"); got != tt.decides {
			t.Errorf("%s: decides %t", name, got)
		} else if got && (undecided.after(e) != readsSecond || e.against() != "needs the right to get, list and watch tier.x") {
			t.Errorf("%s: authority %d, %s", name, undecided.after(e), e.against())
		}
	}
}

func TestTheAuthorityChangesAtTheSecondLookAndStays(t *testing.T) {
	complete, partial := evidence{any: true}, evidence{any: true, missing: "Tier a"}
	a := undecided
	for i, step := range []struct {
		e    evidence
		want authority
	}{
		{partial, readsSecond}, {complete, firstIsNext}, {partial, readsSecond}, {complete, firstIsNext}, {complete, readsFirst},
		{partial, readsFirst}, {evidence{}, readsFirst},
	} {
		if a = a.after(step.e); a != step.want {
			t.Fatalf("step %d: authority %d, want %d", i, a, step.want)
		}
		if want := map[bool]int{true: 0, false: 1}[a == readsFirst]; a.place() != want {
			t.Errorf("step %d: place %d, want %d", i, a.place(), want)
		}
	}
}

func TestAGroupThatIsServedAloneIsInForce(t *testing.T) {
	for name, tt := range map[string]struct {
		before        authority
		first, second bool
		want          authority
	}{
		"both":                        {firstIsNext, true, true, firstIsNext},
		"the second goes":             {readsSecond, true, false, readsFirst},
		"the first goes":              {readsFirst, false, true, readsSecond},
		"the first goes and was near": {firstIsNext, false, true, readsSecond},
		"both go":                     {readsFirst, false, false, undecided},
	} {
		if got := tt.before.served(tt.first, tt.second); got != tt.want {
			t.Errorf("%s: authority %d, want %d", name, got, tt.want)
		}
	}
}
