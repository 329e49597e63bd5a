package agent

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/health"
	"github.com/margay-project/margay/pkg/syncer"
)

const (
	// loopTimeout is how long one pass of the loop may take before /livez fails.
	loopTimeout = 90 * time.Second

	// missingAfter is how long this node may be missing among the nodes: a kubelet may be about to register it.
	missingAfter = 30 * time.Second

	// mostAbsent is how many kinds that are not served are named. A cluster without Calico lacks all of its kinds.
	mostAbsent = 2
)

// probes has the health endpoints say how the loop, the datastore and policy are. Level-triggered.
type probes struct {
	loop, datastore, policy *health.Component
	missing                 missingNode
	faults                  nodeFaults
}

func newProbes(o Options, faults nodeFaults) *probes {
	return &probes{loop: o.Health.Add("loop", loopTimeout), datastore: o.Health.Add("datastore", 0), policy: o.Health.Add("policy", 0),
		missing: missingNode{node: o.Node, log: o.Log}, faults: faults}
}

// Observe implements observer.
func (p *probes) Observe(o Outcome) {
	p.loop.Report(health.Report{Live: true, Ready: true}) // each pass is one: long ones may follow each other without a look
	if o.Facts == nil {
		return
	}
	datastore := datastoreHealth(o.Facts.Kinds)
	if text := p.missing.check(o.Facts, o.Ended); text != "" {
		datastore.Ready = false
		datastore.Detail = strings.TrimPrefix(datastore.Detail+"; "+text, "; ")
	}
	p.datastore.Report(datastore)
	p.policy.Report(policyHealth(o.Status, o.States, p.faults.unready()))
}

// datastoreHealth is live whatever the datastore does: a new process would not find it in a better state.
func datastoreHealth(kinds []syncer.KindStatus) health.Report {
	r := health.Report{Live: true, Ready: true}
	var details, absent []string
	failing := map[string][]string{} // kinds by error: in an outage all have the same
	var errs []string
	for _, k := range kinds {
		if k.Required && !k.Listed {
			r.Ready = false
		}
		switch {
		case k.State == syncer.KindAbsent:
			absent = append(absent, k.Kind)
		case k.State == syncer.KindFailing, k.Error != "" && !k.Listed:
			if failing[k.Error] == nil {
				errs = append(errs, k.Error)
			}
			failing[k.Error] = append(failing[k.Error], k.Kind)
		case k.Required && !k.Listed:
			details = append(details, k.Kind+": waiting for the first list")
		}
	}
	for i, err := range errs {
		errs[i] = strings.Join(failing[err], ", ") + ": " + err
	}
	details = append(errs, details...)
	switch n := len(absent); {
	case n > mostAbsent:
		details = append(details, fmt.Sprintf("%d optional kinds: absent", n))
	case n > 0:
		details = append(details, strings.Join(absent, ", ")+": absent")
	}
	r.Detail = strings.Join(details, "; ")
	return r
}

// missingNode is whether the datastore has nodes and this is none of them. Then no pod is this node's, and so all pods
// that are here are without network.
type missingNode struct {
	node   string
	log    *slog.Logger
	since  time.Time // zero: it is not missing
	logged bool
}

// isNode reports whether a kind is that of nodes: the API server's, or Calico's in etcd.
func isNode(kind string) bool { return kind == "Node" || kind == "Node.projectcalico.org" }

// check returns the message about the missing node; empty: none.
func (m *missingNode) check(f *Facts, now time.Time) string {
	missing := f.Synced && !f.NodeSeen && slices.ContainsFunc(f.Kinds, func(k syncer.KindStatus) bool {
		return isNode(k.Kind) && k.Listed && k.Objects > 0
	})
	if !missing {
		m.since, m.logged = time.Time{}, false
		return ""
	}
	if m.since.IsZero() {
		m.since = now
	}
	if now.Sub(m.since) < missingAfter {
		return ""
	}
	text := fmt.Sprintf("no Node is named %q: is that this node's name (--node)?", m.node)
	if !m.logged {
		m.logged = true
		m.log.Error("no pod belongs to this node, so pods that run here get no network", "err", text)
	}
	return text
}

// policyHealth is ready if policy is enforced; unless fault says what is wrong with all pods of this node.
func policyHealth(s Status, states []dataplane.EndpointStatus, fault string) health.Report {
	switch {
	case s.Error != "":
		return health.Report{Live: true, Detail: "not fully enforced, what was written before is left as it is: " + s.Error}
	case !s.InSync:
		return health.Report{Live: true, Detail: "nothing is enforced before the first full snapshot of the datastore"}
	}
	if fault != "" {
		return health.Report{Live: true, Detail: fault}
	}
	detail := fmt.Sprintf("%d of %d endpoints enforced", enforcedOf(states), len(states))
	if waiting := waitingOf(states); waiting > 0 {
		detail += fmt.Sprintf(", %d without an interface yet", waiting)
	}
	if held := countOf(states, func(e dataplane.EndpointStatus) bool { return e.Condition == dataplane.Held }); held > 0 {
		detail += fmt.Sprintf(", the policy of %d cannot be", held)
	}
	return health.Report{Live: true, Ready: s.Ready, Detail: detail}
}

// enforcedOf counts the endpoints that are as they should be.
func enforcedOf(states []dataplane.EndpointStatus) int {
	return countOf(states, func(e dataplane.EndpointStatus) bool { return e.Condition == dataplane.Enforced })
}

// waitingOf counts the endpoints that wait for their interfaces.
func waitingOf(states []dataplane.EndpointStatus) int {
	return countOf(states, func(e dataplane.EndpointStatus) bool { return e.Condition == dataplane.NoInterface })
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
