package agent

import (
	"fmt"
	"slices"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
)

// notEnforced says of which pods the kernel does not enforce the policy that the objects mean, and why: explain evaluates
// objects, and a policy over a limit is refused. Pods of other nodes have no status here.
func notEnforced(states []dataplane.EndpointStatus, pods []model.EndpointID) []string {
	var texts []string
	for _, s := range states {
		switch s.Condition {
		case dataplane.Held, dataplane.Failed, dataplane.Pending:
		default:
			continue
		}
		if slices.Contains(pods, s.ID) && s.Reason != "" {
			texts = append(texts, fmt.Sprintf("%s: %s", s.ID, s.Reason))
		}
	}
	return texts
}
