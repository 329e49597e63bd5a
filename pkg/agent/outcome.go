package agent

import (
	"iter"
	"time"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// Outcome describes one pass of the loop and its results. Each part is nil if the pass did nothing of that kind.
// Observers must not change it.
type Outcome struct {
	Started, Ended time.Time

	Batch  Batch          // drained from the inbox
	Config *ConfigOutcome // configuration was read, or applied
	Reopen *Reopening     // the dataplane was reopened
	Flush  *Flush         // the graph was flushed, and knows all of the first snapshot
	Apply  *Attempt       // the dataplane was called
	Sweep  *Sweep         // expired flows were removed
	Facts  *Facts         // the regular look, or whether the agent is ready has changed

	Inherited map[string]bool // before the first snapshot is enforced: the dataplane's Ready

	Status   Status                     // after the pass
	States   []dataplane.EndpointStatus // as of the last Attempt
	Complete bool                       // nothing is left to be tried again
}

// Enforced reports whether everything that was drained up to this pass is enforced, or is no concern of this node.
func (o Outcome) Enforced() bool {
	return o.Flush != nil && (o.Apply == nil || o.Apply.Err == nil)
}

// Flush is one flush of the graph.
type Flush struct {
	Changes   model.Changes
	Took      time.Duration
	First     bool              // nothing is enforced before it
	Postponed []model.PolicyKey // policies that have come and wait for a later flush
}

// Attempt is one attempt to enforce the desired state. It is successful even if single endpoints are held back.
type Attempt struct {
	Started time.Time
	Took    time.Duration // from Started, the flush included
	Retry   bool          // it repeats a failed one
	Reopen  bool          // the dataplane could not be reopened, so that nothing was applied
	Err     error         // nil: successful
	Held    *dataplane.HeldBack
	First   bool // the first successful one
}

// Reopening reports that the dataplane was reopened with the enforced state as its start.
type Reopening struct {
	Stuck bool // because changes that could not be written kept others waiting; otherwise because of the configuration
}

// Sweep is one turn at removing expired flows.
type Sweep struct {
	Took time.Duration
	Next time.Duration // until the next one
	Err  error
}

// ConfigOutcome reports changes of the configuration.
type ConfigOutcome struct {
	Desired  config.Config    // the present configuration
	Problems []config.Problem // of the datastore's configuration, all there are
	FileErr  error            // a version of the file is not valid, or cannot be read, and was not used
	FileBack bool             // it can be used again

	Applied config.Change // the change that was applied
	Refused config.Change // what the dataplane could not be reopened with
	Err     error         // why
}

// Facts are for observers that report regularly.
type Facts struct {
	Synced        bool // the first snapshot has been drained
	NodeSeen      bool // the datastore has this node
	Kinds         []syncer.KindStatus
	Settings      []validate.Problem // of the configuration among the objects
	Interfaces    map[string]uint32  // workload interfaces, ifindex by name; nil: nothing is enforced yet
	Local         []*model.EndpointPolicy
	Awaited       []calc.AwaitedPod // pods of this node that are not among Local yet
	LostClaims    []calc.LostClaim
	ServiceClaims iter.Seq[calc.ServiceClaim]
}
