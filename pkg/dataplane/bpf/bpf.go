package bpf

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/dataplane/plans"
	"github.com/margay-project/margay/pkg/model"
)

// BPF enforces with BPF programs on the endpoints' interfaces.
type BPF struct {
	config    dataplane.Config
	next      *dataplane.Config // configuration for the next Reopen; nil: config
	kernel    *kernel
	programs  *bpfmaps.Programs
	pins      pins
	sweeps    sweeps
	observer  dataplane.Observer
	resync    bool
	repairs   uint64 // of maps that others have changed, so far; the host counts programs
	state     *state // replaced whole when it is reopened
	flowTable flowTable
}

// Apply implements Dataplane. A failure of one endpoint or of the guard does not stop the plan.
func (d *BPF) Apply(_ context.Context, ch model.Changes) error {
	s := d.state
	d.sweeps.confirm(d.programs)
	s.plans.Enqueue(ch)
	if err := s.interfaces.outside.check(); err != nil {
		return err
	}
	s.renewal.run(d.programs, s.tables.slots)
	var errs []error
	if n := d.pins.keep(d.resync); n > 0 {
		d.repairs += n
		d.resync = true
		d.sweeps.replace(d.programs)
		errs = append(errs, s.tables.slots.Repin())
	}
	errs = append(errs, d.pins.err)
	repairs, err := s.resync().look(d.resync, len(ch.Endpoints)+len(ch.Sets) > 0)
	d.repairs += repairs
	errs, d.resync = append(errs, err), err != nil
	s.observe()
	s.refusals.RetryTables()
	errs = append(errs, plans.CarryOut(s.plans, s.pace, s, d.observer), s.finish(), s.refusals.missing())
	s.names.writeMore()
	d.flowTable.publish(s.endpoints.roster.bound, d.kernel.host.Addrs())
	if d.Unfinished() {
		d.kernel.host.Nudge(d.rest())
	}
	if err := errors.Join(errs...); err != nil {
		return errors.Join(err, s.plans.Failures())
	}
	if err := s.leaveOlder(); err != nil {
		return errors.Join(err, s.plans.Failures())
	}
	if err := s.plans.Failures(); err != nil {
		return &dataplane.HeldBack{Err: err, Retry: s.plans.Failing}
	}
	return nil
}

// Unfinished reports whether the next Apply, without changes, continues a large policy, the writing of names or a resync. It is
// false while the kernel refuses writes: then a retry is due.
func (d *BPF) Unfinished() bool {
	s := d.state
	return s.plans.Done() && (s.plans.Plan.More || s.comparison.unfinished() && !d.resync) || s.names.unfinished()
}

// rest is the time until the next Apply has something to continue. A plan that cleans up does not wait for a part of a large policy.
func (d *BPF) rest() time.Duration {
	if d.state.names.unfinished() || d.state.comparison.unfinished() && !d.resync || d.state.plans.Pending() {
		return 0
	}
	return d.state.pace.Wait()
}

// Prepare implements Dataplane.
func (d *BPF) Prepare() { d.state.prepare() }

// Resync implements Dataplane.
func (d *BPF) Resync() { d.resync = true }

// Sweep implements Dataplane.
func (d *BPF) Sweep() (time.Duration, error) { return d.sweeps.turn() }

// Wake implements Dataplane.
func (d *BPF) Wake() <-chan struct{} { return d.kernel.host.Wake() }

// Endpoints implements Dataplane.
func (d *BPF) Endpoints() []dataplane.EndpointStatus {
	return d.state.status.all(d.flowTable.limiter.Findings())
}

// Interfaces implements Dataplane.
func (d *BPF) Interfaces() map[string]uint32 { return d.state.interfaces.enforced() }

// Ready implements Dataplane.
func (d *BPF) Ready() map[string]bool {
	ready := map[string]bool{}
	for name, ifindex := range d.kernel.host.Interfaces() {
		if d.kernel.isReady(ifindex) {
			ready[name] = true
		}
	}
	return ready
}

// Observe reports every Apply to o from now on. Call it before the first.
func (d *BPF) Observe(o dataplane.Observer) { d.observer = o }

// Close implements Dataplane.
func (d *BPF) Close() error {
	var errs []error
	if s := d.state; s != nil {
		errs = append(errs, s.interfaces.resign(), d.kernel.heirs.close(d.kernel.host, s.tables.slots.Quiesce, s.endpoints.entries.inForce), s.close())
	}
	return errors.Join(slices.Concat(errs, []error{d.kernel.host.Close(), d.release()})...)
}

// release closes everything except the host: all that open has opened so far.
func (d *BPF) release() error {
	errs := []error{d.sweeps.close()}
	if d.kernel.endpoints != nil {
		errs = append(errs, d.kernel.endpoints.Close())
	}
	if d.programs != nil {
		errs = append(errs, d.programs.Close())
	}
	return errors.Join(append(errs, d.kernel.maps.Close())...)
}
