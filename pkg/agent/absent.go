package agent

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// absentAfter is how long all pods of this node may wait for their interfaces before that is said: a node that has just booted still
// has the pods of before, until the CNI plugin has made their interfaces again.
const absentAfter = 30 * time.Second

// absentInterfaces is whether this node has pods, and none of them has its interface. Most likely the prefix is wrong. Then no
// interface is a workload interface, so none is closed, and the node forwards everything. Owned by the loop.
type absentInterfaces struct {
	node, prefix string
	log          *slog.Logger

	since  time.Time // zero: it is not so
	text   string    // the message; empty: none
	logged bool
}

// Observe implements observer.
func (a *absentInterfaces) Observe(o Outcome) {
	if o.Facts != nil && o.Facts.Interfaces != nil {
		a.look(o.Ended, len(o.Facts.Interfaces), o.States)
	}
}

// look judges the states of the endpoints of this node. interfaces is the number of workload interfaces there are.
func (a *absentInterfaces) look(now time.Time, interfaces int, states []dataplane.EndpointStatus) {
	pods := withoutInterface(states)
	if pods == 0 {
		a.since, a.text = time.Time{}, ""
		a.logChange()
		return
	}
	if a.since.IsZero() {
		a.since = now
	}
	if now.Sub(a.since) >= absentAfter {
		a.text = a.describe(pods, interfaces)
	}
	a.logChange()
}

// withoutInterface counts the pods that wait for their interface if that is so for all of them; otherwise it returns 0. Pods in the
// network of their host, finished ones and those without an address are no endpoints.
func withoutInterface(states []dataplane.EndpointStatus) int {
	pods, waiting := 0, 0
	for _, s := range states {
		if s.ID.Kind != model.WorkloadEndpoint {
			continue
		}
		if s.Ifindex != 0 {
			return 0
		}
		pods++
		if s.Condition == dataplane.NoInterface {
			waiting++
		}
	}
	if waiting == 0 {
		return 0 // a dataplane that knows no interfaces has nothing to wait for
	}
	return pods
}

func (a *absentInterfaces) describe(pods, interfaces int) string {
	found := fmt.Sprintf("no interface begins with %q", a.prefix)
	if interfaces > 0 {
		found = fmt.Sprintf("none of the interfaces that begin with %q (%d) is a pod's of this node", a.prefix, interfaces)
	}
	waits := fmt.Sprintf("all %d pods of this node wait for theirs", pods)
	if pods == 1 {
		waits = "the only pod of this node waits for its own"
	}
	return found + ", and " + waits + ": is --interface-prefix right?"
}

// logChange logs that the message is there, and that it is gone; not each other number of pods meanwhile.
func (a *absentInterfaces) logChange() {
	if a.logged == (a.text != "") {
		return
	}
	a.logged = a.text != ""
	if a.logged {
		a.log.Error("no pod of this node has its interface, so no policy is enforced", "err", a.text)
	} else {
		a.log.Info("pods of this node have their interfaces")
	}
}

// unready is the reason why the agent is not ready; empty: it is ready.
func (a *absentInterfaces) unready() string { return a.text }

// problems returns the message, if there is one, as a problem of the node.
func (a *absentInterfaces) problems() []validate.Problem {
	return nodeProblem(a.node, a.text)
}
