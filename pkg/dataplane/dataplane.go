// Package dataplane enforces what the calculation graph decided. It is the one place where the order of kernel writes
// is laid down. It knows nothing of Kubernetes.
package dataplane

import (
	"context"
	"errors"
	"time"

	"github.com/margay-project/margay/pkg/model"
)

// Dataplane brings the kernel to a desired state, differences first.
//
// Not safe for concurrent use: one loop owns it.
type Dataplane interface {
	// Apply adds ch to the desired state and writes the difference. On an error the enforced state stays enforced,
	// pending writes are remembered, and the next Apply (with or without changes) tries again from there. The error names
	// each endpoint or map concerned. ErrStuck: changes wait for others that cannot be written. HeldBack: everything is
	// enforced except the policy of the endpoints that it names.
	Apply(ctx context.Context, ch model.Changes) error
	// Prepare does a part of the work that nothing waits for yet. Call it after each Apply. If there is more to do,
	// Wake delivers.
	Prepare()
	// Resync makes the next Apply read the kernel's state again and repair changes made by others.
	Resync()
	// Reopen forgets the desired state and starts from the enforced one, as a new process would: the next Apply must be
	// given everything that is desired. After an error it must be called again before the next Apply.
	Reopen() error
	// Configure sets the configuration for the next Reopen. Programs with the new values then replace those in force, as
	// they do when an agent is restarted: no flow is forgotten, and no packet passes unjudged. If they cannot be loaded,
	// that Reopen fails and the old configuration stays. Nothing is set if c differs in a field that takes a restart;
	// the error names it.
	Configure(c Config) error
	// Wake delivers when the dataplane itself has something to do (an interface came, an address changed): call Apply.
	Wake() <-chan struct{}
	// Endpoints are the local endpoints as they are in the kernel, those whose policy cannot be compiled included, by id.
	// The next call may write over the list.
	Endpoints() []EndpointStatus
	// Interfaces are the workload interfaces of this node, ifindex by name, as of the last Apply; those of no endpoint are
	// closed. Nil before anything is enforced. The map is the caller's.
	Interfaces() map[string]uint32
	// Ready are the names of the workload interfaces that have policy in the kernel now, whichever agent has put it there; all others are
	// closed. It may be called before the first Apply. Nil: not known, for example while it cannot be read. An interface
	// that replaces another one of its name is not ready because of that one. The map is the caller's.
	Ready() map[string]bool
	// Stats counts the dataplane's objects. interfaces: the result also has the endpoints by interface. The result is
	// the caller's.
	Stats(interfaces bool) Stats
	// Sweep does a part of the work of removing expired flows, about a millisecond's, and returns when it is to be called
	// again.
	Sweep() (next time.Duration, err error)
	// Close releases all resources and leaves policy enforced.
	Close() error
}

// ErrStuck says that changes which cannot be written keep later ones from being tried. If that lasts, call Reopen: the
// state that is desired by then may be possible.
var ErrStuck = errors.New("later changes wait")

// HeldBack is the error of an Apply that has enforced everything except the policy of single endpoints: their policy is
// over a limit, say, or the kernel has no room for it. They keep their last policy, or are closed. The owner of a pod
// or of its policies can cause this, so it is no fault of the agent.
type HeldBack struct {
	Err   error // one line for each endpoint-direction
	Retry bool  // the next Apply may do better although nothing has changed
}

// Error names each endpoint.
func (h *HeldBack) Error() string { return h.Err.Error() }

// Unwrap returns the causes.
func (h *HeldBack) Unwrap() error { return h.Err }
