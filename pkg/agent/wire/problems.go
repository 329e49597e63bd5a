package wire

import (
	"fmt"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/lint"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// SeverityLint is the severity of policy that is enforced as written, and most likely not what was meant.
const SeverityLint = "lint"

// Problem is a problem of an object as a row.
func Problem(p validate.Problem) ProblemRow {
	return ProblemRow{Severity: p.Severity.String(), Object: p.Ref.String(), Field: p.Field, Reason: p.Reason}
}

// GraphProblem is a problem of how objects fit together as a row.
func GraphProblem(p calc.Problem) ProblemRow {
	return ProblemRow{Severity: validate.Warning.String(), Object: p.Object, Reason: p.Text}
}

// Finding is a finding about a policy as a row.
func Finding(f lint.Finding) ProblemRow {
	_, kind := APIKind(f.Policy.Kind)
	name := f.Policy.Name
	if f.Policy.Namespace != "" {
		name = f.Policy.Namespace + "/" + name
	}
	row := ProblemRow{Severity: SeverityLint, Object: kind + " " + name, Reason: f.Text}
	if f.Rule >= 0 {
		row.Field = fmt.Sprintf("%s[%d]", f.Direction, f.Rule)
	}
	return row
}

// APIKind is what users call a kind of policy: its API version, if it has one, and kind.
func APIKind(k model.PolicyKind) (apiVersion, kind string) {
	switch k {
	case model.KindKubernetesNetworkPolicy:
		return "networking.k8s.io/v1", "NetworkPolicy"
	case model.KindKubernetesClusterNetworkPolicy:
		return "policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy"
	case model.KindNetworkPolicy:
		return "projectcalico.org/v3", "NetworkPolicy"
	case model.KindGlobalNetworkPolicy:
		return "projectcalico.org/v3", "GlobalNetworkPolicy"
	}
	return "", string(k)
}
