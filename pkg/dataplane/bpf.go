package dataplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile"
	"github.com/margay-project/margay/pkg/model"
)

// BPF enforces with BPF programs on the endpoints' interfaces.
type BPF struct {
	config   Config
	next     *Config // to go on with when it is reopened; nil: config
	log      *slog.Logger
	observer Observer

	maps       *bpfmaps.Maps
	slots      slots
	endpoints  *bpfmaps.Endpoints
	gens       *bpfmaps.Generations
	programs   *bpfmaps.Programs
	host       Host
	interfaces map[string]uint32 // as last observed

	compiler *compile.Compiler
	waiting  []model.Changes // not compiled yet: an earlier plan is still being carried out
	plan     compile.Plan
	step     int // next step of plan; len(order): done

	tables   map[compile.TableID]published
	names    *names
	out      *exclusions
	bound    map[model.EndpointID]*endpoint
	owners   map[netip.Prefix]compile.AddrChange // addresses of endpoints, to be written again when an interface changes
	dirty    map[model.EndpointID]bool           // endpoints whose programming is to be tried (again)
	adopted  map[string]model.EndpointID         // stand-ins of endpoints found at the start, by interface
	leaving  map[uint32]bool                     // interfaces that are no endpoint's any more, with programs on them still
	prepared map[uint32]bool                     // interfaces that are no endpoint's (yet): whether they have programs; false: they are to have none
	peerless map[model.EndpointID]bool           // endpoints programmed without what is to be found out about their peer
	unused   []uint32                            // slots to be released, once no endpoint in the kernel refers to them
	numbers  uint32                              // last endpoint number given
	ready    bool                                // the first plan has got as far as the guard
	guarded  bool
	resync   bool
	sweeps   sweeps
	repairs  uint64          // of what somebody else had changed, so far
	older    []string        // directories of other map layouts, whose links are still to be taken over
	retired  map[uint32]bool // classes that were dropped and whose sets are still in class_sets
	quiet    <-chan error    // delivers when retired can be removed; nil: nothing to wait for
}

// published is a table in the kernel.
type published struct {
	slot    uint32
	program *compile.Program // nil: an earlier agent's
}

// endpoint is what one local endpoint shall have, and has.
type endpoint struct {
	policy  *model.EndpointPolicy
	tables  [2]compile.TableID // by model.Direction
	gens    [2]uint32
	ifindex uint32 // programmed in the kernel; 0: not
	ensured uint32 // interface that programs are attached to, as far as is known; 0: to be made sure
	peer    Peer
	failure string // why it could not be programmed; empty: it was
	number  uint32 // for people and events
	refused uint64 // open flows beyond its share, as told
	share   uint32 // of the flow tables, plus one; 0: none yet
	unasked bool   // an earlier agent may have died before it had its flows judged again
}

// slots is the part of bpfmaps.Slots that is used here.
type slots interface {
	Publish(contents []bpfmaps.SlotContent) ([]uint32, error)
	PatchRows(slot uint32, list []bpfmaps.Row) error
	EnlargeRows(slots []uint32, rows [][]bpf.CellBlock) error
	Classes(slot uint32) uint32
	Release(slot uint32) error
	Altered(m *bpfmaps.Maps) ([]uint32, error)
	Quiesce() <-chan error
	Usage() bpfmaps.SlotUsage
	Live() []uint32
	Close() error
}

// order is the order of kernel writes: the one place where it is laid down. What a step leaves undone keeps the later
// ones from being taken, so a packet is always judged by an old policy or a new one.
var order = []struct {
	what string
	do   func(*BPF) error
}{
	{"name sets and rules", (*BPF).writeNames},
	{"add classes", (*BPF).writeClasses},
	{"publish policies", (*BPF).publish},
	{"make room for new classes", (*BPF).enlarge},
	{"add rows of new classes", (*BPF).addRows},
	{"bind endpoints to grown tables", (*BPF).grow},
	{"note that flows are to be judged again", (*BPF).announce},
	{"move addresses", func(d *BPF) error { return d.writeAddrs(d.plan.Addrs) }},
	{"bind endpoints", (*BPF).bind},
	{"unbind endpoints", (*BPF).unbind},
	{"have live flows judged again", (*BPF).rejudge},
	{"attach", (*BPF).attach},
	{"guard the node", (*BPF).firstGuard},
	{"release policies", (*BPF).release},
	{"clean up addresses", func(d *BPF) error { return d.writeAddrs(d.plan.LateAddrs) }},
	{"drop classes, sets and rules", (*BPF).drop},
}

// Apply implements Dataplane. What one endpoint or the guard lacks does not keep the plan from going on.
func (d *BPF) Apply(_ context.Context, ch model.Changes) error {
	d.waiting = enqueue(d.waiting, ch)
	var errs []error
	if d.resync {
		err := d.reread()
		errs, d.resync = append(errs, err), err != nil
	}
	d.observe()
	d.retryTables()
	errs = append(errs, d.carryOut(), d.retryAddrs(), d.closeWide(), d.program(), d.detach(), d.guard(), d.writeLeft(),
		d.out.err())
	d.names.goOn()
	if d.Unfinished() {
		d.host.Nudge()
	}
	if err := errors.Join(errs...); err != nil {
		return errors.Join(err, d.failures())
	}
	if err := d.leaveOlder(); err != nil {
		return errors.Join(err, d.failures())
	}
	if err := d.failures(); err != nil {
		return &HeldBack{Err: err, Retry: d.out.failing}
	}
	return nil
}

// carryOut takes the steps of the plan that are left, and those of the plans for what waits, or is to be tidied up. Of a
// large policy it takes one more part at a time, so that the changes of others come in between.
func (d *BPF) carryOut() error {
	err := d.carryOn()
	part := d.plan.More
	for err == nil && (len(d.waiting) > 0 || d.plan.Unsettled || d.out.again || part) {
		ch := model.Changes{InSync: true}
		if len(d.waiting) > 0 {
			ch, d.waiting = d.waiting[0], d.waiting[1:]
		}
		d.out.again, part = false, false
		started := time.Now()
		d.compiler.Hold(d.busyClasses())
		d.plan, d.step = d.compiler.Update(ch), 0
		compiled := time.Now()
		err = d.carryOn()
		d.ready = true // what could not be programmed is closed
		if len(ch.Endpoints)+len(ch.Sets) > 0 {
			d.observer.Compiled(compiled.Sub(started))
			d.observer.Published(time.Since(compiled))
		}
	}
	if err != nil && slices.ContainsFunc(d.waiting, func(ch model.Changes) bool { return len(ch.Endpoints)+len(ch.Sets) > 0 }) {
		err = fmt.Errorf("%w: %w", ErrStuck, err)
	}
	return err
}

// Unfinished reports whether the next Apply, without changes, goes on with a large policy, or with names. If the kernel
// refuses writes it is not: then a retry is due.
func (d *BPF) Unfinished() bool { return d.step == len(order) && d.plan.More || d.names.unfinished() }

// carryOn takes the steps of the plan that are left.
func (d *BPF) carryOn() error {
	for ; d.step < len(order); d.step++ {
		if err := order[d.step].do(d); err != nil {
			return fmt.Errorf("%s: %w", order[d.step].what, err)
		}
	}
	return nil
}

// Prepare implements Dataplane.
func (d *BPF) Prepare() {
	d.meetPeers()
	d.attachAhead()
}

// Resync implements Dataplane.
func (d *BPF) Resync() { d.resync = true }

// Sweep implements Dataplane.
func (d *BPF) Sweep() (time.Duration, error) { return d.sweeps.turn() }

// Close implements Dataplane.
func (d *BPF) Close() error {
	if d.quiet != nil {
		<-d.quiet // it may be using maps
	}
	errs := []error{d.host.Close(), d.sweeps.close(), d.slots.Close(), d.endpoints.Close()}
	if d.programs != nil {
		errs = append(errs, d.programs.Close())
	}
	return errors.Join(append(errs, d.maps.Close())...)
}
