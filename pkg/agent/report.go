package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/endpointstatus"
	"github.com/margay-project/margay/pkg/events"
	"github.com/margay-project/margay/pkg/health"
	"github.com/margay-project/margay/pkg/metrics"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// silence is how long the loop may take for one round before it is taken for dead.
const silence = 90 * time.Second

// parts are the components of the agent that say how they are.
type parts struct{ loop, datastore, policy, node *health.Component }

func newParts(a *health.Aggregate) parts {
	return parts{a.Add("loop", silence), a.Add("datastore", 0), a.Add("policy", 0), a.Add("node", 0)}
}

// report says how everything is, to probes and to the owners of objects. Level-triggered: it may be called at any time.
func (l *Loop) report() {
	l.parts.loop.Report(health.Report{Live: true, Ready: true})
	l.policies.tick(time.Now())
	l.closed.look(time.Now(), l.o.Dataplane.Interfaces(), l.o.Graph.LocalEndpoints(), l.o.Graph.Nodes)
	kinds := l.o.Source.Kinds()
	l.parts.datastore.Report(l.nodeHealth(datastoreHealth(kinds), kinds))
	l.parts.policy.Report(policyHealth(l.status.get(), l.states, l.closed.unready()))
	l.tellOwners()
}

// datastoreHealth is live whatever the datastore does: a new process would not find it in a better state.
func datastoreHealth(kinds []syncer.KindStatus) health.Report {
	r := health.Report{Live: true, Ready: true}
	var details []string
	for _, k := range kinds {
		if k.Required && !k.Listed {
			r.Ready = false
		}
		switch {
		case k.State == syncer.KindAbsent:
			details = append(details, k.Kind+": absent")
		case k.State == syncer.KindFailing, k.Error != "" && !k.Listed:
			details = append(details, fmt.Sprintf("%s: %s", k.Kind, k.Error))
		case k.Required && !k.Listed:
			details = append(details, k.Kind+": waiting for the first list")
		}
	}
	r.Detail = strings.Join(details, "; ")
	return r
}

// lostAfter is how long this node may be missing among the nodes: a kubelet may be about to register it.
const lostAfter = 30 * time.Second

// nodeHealth is the datastore's health with what there is to say of this node: if the datastore has nodes and this is
// none of them, no pod is taken for this node's, and so all of them are without network.
func (l *Loop) nodeHealth(r health.Report, kinds []syncer.KindStatus) health.Report {
	missing := l.synced && !l.o.Settings.NodeSeen() && slices.ContainsFunc(kinds, func(k syncer.KindStatus) bool {
		return k.Kind == "Node" && k.Listed && k.Objects > 0
	})
	if !missing {
		l.missing, l.lost = time.Time{}, false
		return r
	}
	now := time.Now()
	if l.missing.IsZero() {
		l.missing = now
	}
	if now.Sub(l.missing) < lostAfter {
		return r
	}
	text := fmt.Sprintf("no Node is named %q: is that this node's name (--node)?", l.o.Node)
	if !l.lost {
		l.lost = true
		l.o.Log.Error("no pod is taken for this node's, those that are here get no network", "err", text)
	}
	r.Ready = false
	r.Detail = strings.TrimPrefix(r.Detail+"; "+text, "; ")
	return r
}

// policyHealth is ready if policy is enforced; unless cutOff says that all pods of this node are cut off.
func policyHealth(s Status, states []dataplane.EndpointStatus, cutOff string) health.Report {
	switch {
	case s.Error != "":
		return health.Report{Live: true, Detail: "not fully enforced, what was enforced before stays: " + s.Error}
	case !s.InSync:
		return health.Report{Live: true, Detail: "nothing is enforced before the first full snapshot of the datastore"}
	}
	if cutOff != "" {
		return health.Report{Live: true, Detail: cutOff}
	}
	detail := fmt.Sprintf("%d of %d endpoints enforced", enforcedOf(states), len(states))
	if held := countOf(states, func(e dataplane.EndpointStatus) bool { return e.Condition == dataplane.Held }); held > 0 {
		detail += fmt.Sprintf(", the policy of %d cannot be", held)
	}
	return health.Report{Live: true, Ready: s.Ready, Detail: detail}
}

// enforcedOf counts the endpoints that are as they should be.
func enforcedOf(states []dataplane.EndpointStatus) int {
	return countOf(states, func(e dataplane.EndpointStatus) bool { return e.Condition == dataplane.Enforced })
}

func countOf(states []dataplane.EndpointStatus, is func(dataplane.EndpointStatus) bool) int {
	n := 0
	for _, e := range states {
		if is(e) {
			n++
		}
	}
	return n
}

// tellCNI says which endpoints are enforced, once anything is. One that was stays told as long as it is on its interface:
// what its policy was is enforced there even while a newer one cannot be.
func (l *Loop) tellCNI() {
	if l.o.Statuses == nil || !l.status.get().InSync {
		return
	}
	told := make(map[model.EndpointID]uint32, len(l.told))
	var enforced []endpointstatus.Endpoint
	for _, e := range l.states {
		if e.Condition == dataplane.Enforced || e.Ifindex != 0 && l.told[e.ID] == e.Ifindex {
			told[e.ID] = e.Ifindex
			enforced = append(enforced, endpointstatus.Endpoint{ID: e.ID, Iface: e.Iface, Addrs: e.Addrs})
		}
	}
	l.told = told
	l.o.Statuses.Want(enforced)
}

// heldProblems are those of endpoints whose policy cannot be enforced while that of the others is.
func heldProblems(states []dataplane.EndpointStatus) []validate.Problem {
	var list []validate.Problem
	for _, e := range states {
		if e.Condition == dataplane.Held {
			list = append(list, endpointProblem(e))
		}
	}
	return list
}

func endpointProblem(e dataplane.EndpointStatus) validate.Problem {
	return validate.Problem{
		Ref:      validate.Ref{Kind: "Pod", Namespace: e.ID.Namespace, Name: e.ID.Name},
		Severity: validate.Rejected, Reason: e.Reason,
	}
}

// tellOwners says what there is to tell the owners of objects.
func (l *Loop) tellOwners() {
	if l.o.Events == nil {
		return
	}
	now := l.o.Events.Status()
	l.o.Metrics.ObjectEvents(metrics.EventSent, int(now.Sent-l.written.Sent))
	l.o.Metrics.ObjectEvents(metrics.EventFailed, int(now.Failed-l.written.Failed))
	l.written = now
	var items []events.Item
	for _, p := range append(l.o.Source.Problems(), configProblems(l.o.Settings)...) {
		items = append(items, events.Item{Problem: p})
	}
	for _, e := range l.states {
		if e.Reason != "" && (e.Condition == dataplane.Held || e.Ifindex != 0) { // one without an interface is still being made
			items = append(items, events.Item{Local: true, Problem: endpointProblem(e)})
		}
	}
	items = append(items, claimEvents(l.o.Graph)...)
	nodes := 0
	for _, k := range l.o.Source.Kinds() {
		if k.Kind == "Node" {
			nodes = k.Objects
		}
	}
	l.o.Events.Report(items, nodes)
}
