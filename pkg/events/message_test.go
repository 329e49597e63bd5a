package events

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/margay-project/margay/pkg/validate"
)

// problem is one of a NetworkPolicy in shop unless the name has a kind before it, as "Pod web".
func problem(name string, severity validate.Severity, field, reason string) Item {
	ref := validate.Ref{Kind: "NetworkPolicy", Namespace: "shop", Name: name}
	if kind, rest, ok := strings.Cut(name, " "); ok {
		ref.Kind, ref.Name = kind, rest
	}
	if r, ok := resourceOf(ref.Kind); ok && !r.Namespaced {
		ref.Namespace = ""
	}
	return Item{Problem: validate.Problem{Ref: ref, Severity: severity, Field: field, Reason: reason}}
}

func local(it Item) Item {
	it.Local = true
	return it
}

func TestAnObjectsProblemsBecomeOneMessage(t *testing.T) {
	for _, tc := range []struct {
		what         string
		items        []Item
		reason, note string
	}{
		{"rejected", []Item{problem("db", validate.Rejected, "spec.podSelector", "wrong")},
			ReasonPolicyRejected, "not used: spec.podSelector: wrong"},
		{"rejected, of a kind with a group", []Item{problem("GlobalNetworkPolicy.projectcalico.org db", validate.Rejected, "", "wrong")},
			ReasonPolicyRejected, "not used: wrong"},
		{"rejected, no policy", []Item{problem("Service db", validate.Rejected, "", "wrong")},
			ReasonObjectRejected, "not used: wrong"},
		{"rules left out", []Item{problem("db", validate.RulesLeftOut, "spec.ingress[0]", "odd")},
			ReasonRulesLeftOut, "used without the parts that cannot be read: spec.ingress[0]: odd"},
		{"odd", []Item{problem("db", validate.Warning, "spec.egress", "the rules have no effect")},
			ReasonPartlyIgnored, "used only in part: spec.egress: the rules have no effect"},
		{"odd configuration", []Item{problem("FelixConfiguration default", validate.Warning, "spec.x", "not a number")},
			ReasonPartlyIgnored, "used only in part: spec.x: not a number"},
		{"the worst counts and comes first, each is said once",
			[]Item{problem("db", validate.RulesLeftOut, "a", "1"), problem("db", validate.Rejected, "c", "3"), problem("db", validate.Rejected, "b", "2"),
				problem("db", validate.Rejected, "c", "3")},
			ReasonPolicyRejected, "not used: b: 2; c: 3; a: 1"},
		{"of this node alone", []Item{local(problem("Pod web", validate.Rejected, "", "keeps its last policy"))},
			ReasonNotEnforced, "policy is not fully enforced: keeps its last policy"},
		{"an address of another's", []Item{{Local: true, Claim: true, Problem: problem("Pod web", validate.Warning, "", "10.0.0.1 is not its own").Problem}},
			ReasonNotOwned, "10.0.0.1 is not its own"},
		{"an address of another's, and no policy", []Item{{Local: true, Claim: true, Problem: problem("Pod web", validate.Warning, "", "10.0.0.1 is not its own").Problem},
			local(problem("Pod web", validate.Rejected, "", "keeps its last policy"))},
			ReasonNotEnforced, "policy is not fully enforced: keeps its last policy; 10.0.0.1 is not its own"},
		{"an external address of another's", []Item{{Claim: true, Problem: problem("Service web", validate.Warning, "spec.externalIPs", "10.0.0.1 is a pod's").Problem}},
			ReasonNotOwned, "spec.externalIPs: 10.0.0.1 is a pod's"},
		{"to know about the node", []Item{{Local: true, Note: true, Problem: problem("Node n1", validate.Warning, "", "enforced with iptables").Problem}},
			ReasonDataplane, "enforced with iptables"},
	} {
		t.Run(tc.what, func(t *testing.T) {
			all, _ := messages(slices.Values(tc.items))
			if len(all) != 1 {
				t.Fatalf("%d messages, want 1", len(all))
			}
			for _, m := range all {
				if m.reason != tc.reason || m.note != tc.note {
					t.Errorf("%s %q, want %s %q", m.reason, m.note, tc.reason, tc.note)
				}
			}
		})
	}
}

func TestNothingIsSaidOfOddPodsAndUnnamedObjects(t *testing.T) {
	all, leftOut := messages(slices.Values([]Item{
		problem("Pod web", validate.Warning, "", "odd"),
		problem("Service web", validate.Warning, "", "odd"),
		{Problem: validate.Problem{Severity: validate.Rejected, Reason: "not YAML"}},
	}))
	if len(all) != 0 || leftOut != 0 {
		t.Errorf("messages %v, left out %d; want none", all, leftOut)
	}
}

func TestMessagesAreBoundedInNumberAndLength(t *testing.T) {
	var items []Item
	for i := range maxSubjects + 7 {
		items = append(items, problem(fmt.Sprintf("p%04d", i), validate.Rejected, "", "wrong"))
	}
	for i := range 20 {
		items = append(items, problem("p0000", validate.Rejected, fmt.Sprintf("spec.ingress[%d]", i), strings.Repeat("é", 250)))
	}
	items = append(items, problem("p0001", validate.Rejected, "", strings.Repeat("é", maxNote)))
	all, leftOut := messages(slices.Values(items))
	if len(all) != maxSubjects || leftOut != 7 {
		t.Errorf("%d messages and %d left out, want %d and 7", len(all), leftOut, maxSubjects)
	}
	for s, m := range all {
		if len(m.note) > maxNote || !utf8.ValidString(m.note) {
			t.Errorf("%s: a note of %d bytes, valid %v: %s", s, len(m.note), utf8.ValidString(m.note), m.note)
		}
	}
	p0 := subject{kind: "NetworkPolicy", namespace: "shop", name: "p0000"}
	if note := all[p0].note; !strings.HasSuffix(note, "; and 20 more") {
		t.Errorf("the note does not say how many problems are left out: ...%s", note[len(note)-40:])
	}
}

// TestOneNamespaceDoesNotLeaveOutOthers: it has more policies with problems than are remembered, and comes first by name.
func TestOneNamespaceDoesNotLeaveOutOthers(t *testing.T) {
	in := func(namespace string, it Item) Item {
		it.Problem.Ref.Namespace = namespace
		return it
	}
	var items []Item
	for i := range maxSubjects + 1 {
		items = append(items, in("aaa", problem(fmt.Sprintf("p%04d", i), validate.Rejected, "", "wrong")))
	}
	for i := range 3 {
		items = append(items, in("aaa", local(problem(fmt.Sprintf("Pod web-%d", i), validate.Rejected, "", "over a limit"))))
	}
	few := []Item{
		in("zzz", problem("db", validate.Rejected, "", "wrong")),
		in("zzz", local(problem("Pod web", validate.Rejected, "", "keeps its last policy"))),
		problem("GlobalNetworkPolicy.projectcalico.org zzz", validate.Rejected, "", "wrong"),
		{Local: true, Note: true, Problem: problem("Node zzz", validate.Warning, "", "enforced with iptables").Problem},
	}
	all, leftOut := messages(slices.Values(slices.Concat(items, few)))
	if len(all) != maxSubjects || leftOut != 1+3+len(few) {
		t.Errorf("%d messages and %d left out, want %d and %d", len(all), leftOut, maxSubjects, 1+3+len(few))
	}
	for _, it := range few {
		ref := it.Problem.Ref
		if s := (subject{kind: ref.Kind, namespace: ref.Namespace, name: ref.Name, local: it.Local}); all[s] == (message{}) {
			t.Errorf("no message about %s, local %v", s, s.local)
		}
	}
	for i := range 3 {
		if s := (subject{kind: "Pod", namespace: "aaa", name: fmt.Sprintf("web-%d", i), local: true}); all[s] == (message{}) {
			t.Errorf("no message about %s, which only this node knows", s)
		}
	}
}

func TestEventNamesFollowFromWhatIsSaid(t *testing.T) {
	about := subject{kind: "NetworkPolicy", namespace: "shop", name: "db"}
	o, m := object{uid: "1", generation: 1}, message{reason: "PolicyRejected", note: "wrong", version: "1"}
	name := eventName(about, o, m)
	if !strings.HasPrefix(name, "db.") || name != eventName(about, o, m) {
		t.Errorf("name %q, want one that begins with db. and is always the same", name)
	}
	seen := map[string]string{name: "the first"}
	for what, other := range map[string]string{
		"uid":        eventName(about, object{uid: "2", generation: 1}, m),
		"generation": eventName(about, object{uid: "1", generation: 2}, m),
		"note":       eventName(about, o, message{reason: "PolicyRejected", note: "wronger", version: "1"}),
		"reason":     eventName(about, o, message{reason: "RulesLeftOut", note: "wrong", version: "1"}),
		"version":    eventName(about, o, message{reason: "PolicyRejected", note: "wrong", version: "2"}),
	} {
		if like := seen[other]; like != "" {
			t.Errorf("another %s: the name is that of %s", what, like)
		}
		seen[other] = what
	}
	for _, object := range []string{"db", strings.Repeat("x", 253), strings.Repeat("x", 235) + "." + strings.Repeat("x", 17)} {
		name := eventName(subject{kind: "Pod", namespace: "shop", name: object}, o, m)
		if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
			t.Errorf("%q: %v", name, errs)
		}
	}
}

func TestKindsOfRefsAreFound(t *testing.T) {
	for kind, want := range map[string]string{
		"Pod":                               "v1 pods",
		"NetworkPolicy":                     "networking.k8s.io/v1 networkpolicies",
		"NetworkPolicy.networking.k8s.io":   "networking.k8s.io/v1 networkpolicies",
		"NetworkPolicy.projectcalico.org":   "projectcalico.org/v3 networkpolicies",
		"ClusterNetworkPolicy":              "policy.networking.k8s.io/v1alpha2 clusternetworkpolicies",
		"FelixConfiguration":                "projectcalico.org/v3 felixconfigurations",
		"Tier.crd.projectcalico.org":        "projectcalico.org/v3 tiers",
		"NetworkPolicy.example.org":         "",
		"Deployment":                        "",
		"":                                  "",
		"GlobalNetworkSet.projectcalico.or": "",
	} {
		r, ok := resourceOf(kind)
		got := ""
		if ok {
			got = r.Versions[0].String() + " " + r.Resource
		}
		if got != want {
			t.Errorf("%q is %q, want %q", kind, got, want)
		}
	}
	if got := kindName("NetworkPolicy.projectcalico.org"); got != "NetworkPolicy" {
		t.Errorf("kind %q, want NetworkPolicy", got)
	}
}
