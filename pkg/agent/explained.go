package agent

import (
	"fmt"
	"slices"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
)

// notEnforced says of which pods the kernel does not enforce the policy that the objects mean, and why: explain evaluates
// objects, a policy over a limit is refused, and one whose write failed is still to be written. Pods of other nodes have no status here.
func notEnforced(states []dataplane.EndpointStatus, pods []model.EndpointID) []string {
	var texts []string
	for _, s := range states {
		why := s
		switch s.Condition {
		case dataplane.Held, dataplane.Failed, dataplane.Pending:
		default:
			why.Reason = "" // it is no doubt about policy
		}
		if text := shortfall(why); slices.Contains(pods, s.ID) && text != "" {
			texts = append(texts, fmt.Sprintf("%s: %s", s.ID, text))
		}
	}
	return texts
}

// shortfall is all that is to be said of an endpoint that is not as it should be; empty: it is.
func shortfall(s dataplane.EndpointStatus) string {
	if s.Reason != "" && s.NotInForce != "" {
		return s.Reason + "; " + s.NotInForce
	}
	return s.Reason + s.NotInForce
}
