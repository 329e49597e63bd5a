package docs

import (
	"regexp"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/validate"
)

// requiredWords are the words of operations.md for kinds whose plural is not their name with an "s", or that it names together.
var requiredWords = map[string]string{
	"NetworkPolicy":                   "NetworkPolicies",
	"ClusterNetworkPolicy":            "ClusterNetworkPolicies",
	"NetworkPolicy.projectcalico.org": "Calico's Tiers, policies",
	"GlobalNetworkPolicy":             "Calico's Tiers, policies",
	"NetworkSet":                      "network sets",
	"GlobalNetworkSet":                "network sets",
}

// TestRequiredKindsAreDocumented: operations.md names the kinds without which nothing new is enforced, and no other. configuration.md has
// no list of its own, which could differ.
func TestRequiredKindsAreDocumented(t *testing.T) {
	page := strings.Join(strings.Fields(documents(t)["docs/operations.md"]), " ")
	sentence := regexp.MustCompile(`enforces nothing new before [^.]*\.`).FindString(page)
	if sentence == "" {
		t.Fatal("operations.md does not say what must be read before anything new is enforced")
	}
	for _, k := range kinds.Served(validate.Pods{}) {
		word := requiredWords[k.Ref]
		if word == "" {
			word = k.Name + "s"
		}
		if named := regexp.MustCompile(`\b` + word + `\b`).MatchString(sentence); named != k.Required {
			t.Errorf("%s is required: %t; operations.md names %q: %t, in %q", k.Ref, k.Required, word, named, sentence)
		}
	}
	if strings.Contains(documents(t)["docs/configuration.md"], "Without the right to read") {
		t.Error("configuration.md lists the kinds that must be read again: operations.md does")
	}
}
