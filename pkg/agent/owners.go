package agent

import (
	"slices"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/events"
	"github.com/margay-project/margay/pkg/metrics"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// owners reports problems of objects to their owners, by Events.
type owners struct {
	reporter *events.Reporter
	metrics  *metrics.Metrics
	reports  *syncer.Reports // whose problems are read by the reporter: there may be very many, and enforcement waits for the loop
	node     string
	counted  events.Status // as counted by metrics
}

// Observe implements observer.
func (w *owners) Observe(o Outcome) {
	if o.Facts == nil {
		return
	}
	now := w.reporter.Status()
	w.metrics.ObjectEvents(metrics.EventSent, int(now.Sent-w.counted.Sent))
	w.metrics.ObjectEvents(metrics.EventFailed, int(now.Failed-w.counted.Failed))
	w.counted = now
	var items []events.Item
	for _, p := range o.Facts.Settings {
		items = append(items, problemEvent(p, w.node))
	}
	for _, e := range o.States {
		if e.Reason != "" && (e.Condition == dataplane.Held || e.Ifindex != 0) { // one without an interface is still being made
			items = append(items, events.Item{Local: true, Problem: endpointProblem(e)})
		}
	}
	items = append(items, lostClaimEvents(o.Facts.LostClaims, o.States)...)
	nodes := 0
	for _, k := range o.Facts.Kinds {
		if k.Kind == "Node" {
			nodes = k.Objects
		}
	}
	w.reporter.Report(joint(joint(slices.Values(items), serviceClaimEvents(o.Facts.ServiceClaims)), w.problems), nodes)
}

// problems yields Events about the problems of objects.
func (w *owners) problems(yield func(events.Item) bool) {
	for p := range w.reports.All() {
		if !yield(problemEvent(p, w.node)) {
			return
		}
	}
}

// problemEvent is an Event for the owner of an object. Only this agent knows what is wrong with its own node.
func problemEvent(p validate.Problem, node string) events.Item {
	return events.Item{Local: p.Ref.Kind == "Node" && p.Ref.Name == node, Problem: p}
}

// heldProblems are those of endpoints that are not enforced as desired while the others are, or that have lost flows.
func heldProblems(states []dataplane.EndpointStatus) []validate.Problem {
	var list []validate.Problem
	for _, e := range states {
		if e.Condition == dataplane.Held {
			list = append(list, endpointProblem(e))
		}
		ref := validate.Ref{Kind: "Pod", Namespace: e.ID.Namespace, Name: e.ID.Name}
		if e.Staged != "" {
			list = append(list, validate.Problem{Ref: ref, Severity: validate.Warning, Reason: "its staged policies are not evaluated: " + e.Staged})
		}
		if e.Sources != "" {
			list = append(list, validate.Problem{Ref: ref, Severity: validate.Warning, Reason: e.Sources})
		}
		if e.Flows != "" {
			list = append(list, validate.Problem{Ref: ref, Severity: validate.Warning, Reason: e.Flows})
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
