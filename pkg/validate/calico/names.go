package calico

import (
	"strconv"
	"strings"

	"github.com/margay-project/margay/pkg/validate"
)

// PolicyName returns the errors in the name of a NetworkPolicy or GlobalNetworkPolicy; none: the name is valid. A name is a
// label, or the name of a tier, a dot and a label. Names that Calico gives to converted policies may have more dots.
func PolicyName(name string) []string {
	first, rest, dotted := strings.Cut(name, ".")
	if dotted && isConverted(first, rest) {
		return validate.DNSSubdomain(name)
	}
	if wrong := validate.DNSLabel(first); len(wrong) > 0 || !dotted {
		return wrong
	}
	if strings.Contains(rest, ".") {
		return []string{"must be a name, or the name of a tier, one dot and a name"}
	}
	return validate.DNSLabel(rest)
}

// isConverted reports whether a name of these parts, split at the first dot, is one that Calico makes of another name.
func isConverted(first, rest string) bool {
	return (first == "knp" || first == "ossg") && strings.HasPrefix(rest, "default.")
}

// element is the path of an element of a list.
func element(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }
