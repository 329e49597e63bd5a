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
		if why := differs(s); slices.Contains(pods, s.ID) && why != "" {
			texts = append(texts, fmt.Sprintf("%s: %s", s.ID, why))
		}
	}
	return texts
}

// differs returns why the kernel does not have of an endpoint what is desired; empty: it has. The dataplane gives no reason for writes that
// are about to be made. While the loop answers, such writes are those that a failed attempt has left: the status says why it failed.
func differs(s dataplane.EndpointStatus) string {
	if s.Reason == "" && s.Condition == dataplane.Pending {
		return "its policy is still to be written to the kernel; until then the former one is in force"
	}
	return s.Reason
}
