package metrics

import (
	"iter"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/health"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// Snapshot is how the agent stands at one moment. Graph and Dataplane are the loop's, and so taken between two batches.
type Snapshot struct {
	InSync bool // the first full snapshot has been enforced
	Ready  bool // in sync, and the last attempt to enforce succeeded

	Graph      Graph
	Dataplane  dataplane.Stats
	Staged     []StagedCount // by rule; counts only grow, but rules come and go
	Kinds      []syncer.KindStatus
	Problems   iter.Seq[validate.Problem] // of objects, in no order; nil: none
	Components []health.State
	CNIFiles   *CNIFiles // nil: none are written
	// Overtaken counts those of the dataplane's enforced endpoints at whose interfaces programs of others run before ours.
	Overtaken int
}

// CNIFiles counts the files by which CNI plugins wait for policy.
type CNIFiles struct {
	Written int // that are there
	Failed  int // that could not be written or removed in the last attempt
}

// Graph is what calc.Graph.Sizes says.
type Graph struct {
	RemoteEndpoints, Policies, Profiles, Services, Sets, Members int
}
