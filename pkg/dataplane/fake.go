package dataplane

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/margay-project/margay/pkg/model"
)

// Fake is a Dataplane without a kernel, for tests of code that drives one. It keeps to the contract: failed changes are
// remembered and stay unenforced, and Changes are differences. A test may look at it and change it while a loop owns it.
type Fake struct {
	wake chan struct{}

	mu       sync.Mutex // guards all below
	state    FakeState
	settings FakeSettings
	waiting  []model.Changes
	stuck    bool // some of waiting came after an attempt that failed
	fresh    bool // reopened: the next Changes are everything
	next     *Config
}

var _ Dataplane = (*Fake)(nil)

// FakeState is the state that a Fake enforces, and a record of the calls.
type FakeState struct {
	Endpoints map[model.EndpointID]*model.EndpointPolicy
	Sets      map[model.SetID]map[netip.Prefix]bool

	Applies, Resyncs, Sweeps, Reopens int
	Closed                            bool

	Config Config // in force since the last Reopen; Defaults before
}

// FakeSettings say how a Fake behaves.
type FakeSettings struct {
	Delay               time.Duration     // how long an Apply takes
	ApplyErr            error             // the error of Apply for
	Failures            int               // so many calls; negative: until Reopen
	Held                *HeldBack         // what an Apply that does everything answers; nil: nothing is held back
	SweepErr, ReopenErr error             // the errors of Sweep and Reopen
	ConfigureErr        error             // the error of Configure; then it does nothing
	Interfaces          map[string]uint32 // not nil: endpoints of others have none
	Ready               map[string]bool
}

// NewFake returns a dataplane that enforces nothing.
func NewFake() *Fake {
	return &Fake{wake: make(chan struct{}, 1), state: FakeState{
		Endpoints: map[model.EndpointID]*model.EndpointPolicy{}, Sets: map[model.SetID]map[netip.Prefix]bool{},
		Config: Defaults(),
	}}
}

// State is a copy of the present state.
func (f *Fake) State() FakeState {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.state
	s.Endpoints, s.Sets = maps.Clone(s.Endpoints), map[model.SetID]map[netip.Prefix]bool{}
	for id, members := range f.state.Sets {
		s.Sets[id] = maps.Clone(members)
	}
	return s
}

// Set replaces the settings.
func (f *Fake) Set(s FakeSettings) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settings = s
}

// Awake plays an interface that comes.
func (f *Fake) Awake() { f.wake <- struct{}{} }

// Apply implements Dataplane.
func (f *Fake) Apply(_ context.Context, ch model.Changes) error {
	f.mu.Lock()
	takes := f.settings.Delay
	f.mu.Unlock()
	time.Sleep(takes)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Applies++
	f.stuck = f.stuck || len(f.waiting) > 0 && len(ch.Endpoints)+len(ch.Sets) > 0
	f.waiting = Enqueue(f.waiting, ch)
	if f.settings.Failures != 0 {
		f.settings.Failures = max(f.settings.Failures-1, -1)
		if f.stuck {
			return fmt.Errorf("%w: %w", ErrStuck, f.settings.ApplyErr)
		}
		return f.settings.ApplyErr
	}
	if f.fresh {
		clear(f.state.Endpoints)
		clear(f.state.Sets)
	}
	for _, ch := range f.waiting {
		f.state.carryOut(ch)
	}
	f.waiting, f.stuck, f.fresh = nil, false, false
	if f.settings.Held != nil {
		return f.settings.Held
	}
	return nil
}

func (f *FakeState) carryOut(ch model.Changes) {
	maps.Copy(f.Endpoints, ch.Endpoints)
	maps.DeleteFunc(f.Endpoints, func(_ model.EndpointID, p *model.EndpointPolicy) bool { return p == nil })
	for id, change := range ch.Sets {
		if change.Gone {
			delete(f.Sets, id)
			continue
		}
		if f.Sets[id] == nil {
			f.Sets[id] = map[netip.Prefix]bool{}
		}
		for _, p := range change.Removed {
			delete(f.Sets[id], p)
		}
		for _, p := range change.Added {
			f.Sets[id][p] = true
		}
	}
}

// Resync implements Dataplane.
func (f *Fake) Resync() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Resyncs++
}

// Prepare implements Dataplane.
func (f *Fake) Prepare() {}

// Reopen implements Dataplane.
func (f *Fake) Reopen() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Reopens++
	if f.settings.ReopenErr != nil {
		f.next = nil // the old configuration stays
		return f.settings.ReopenErr
	}
	f.waiting, f.stuck, f.fresh, f.settings.Failures = nil, false, true, 0
	if f.next != nil {
		f.state.Config, f.next = *f.next, nil
	}
	return nil
}

// Configure implements Dataplane.
func (f *Fake) Configure(c Config) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.settings.ConfigureErr != nil {
		return f.settings.ConfigureErr
	}
	if err := Reconfigurable(f.state.Config, c); err != nil {
		return err
	}
	f.next = &c
	return nil
}

// Wake implements Dataplane.
func (f *Fake) Wake() <-chan struct{} { return f.wake }

// Endpoints implements Dataplane: every applied policy is enforced, unless its interface is not there.
func (f *Fake) Endpoints() []EndpointStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []EndpointStatus
	for id, policy := range f.state.Endpoints {
		s := EndpointStatus{ID: id, Iface: policy.Iface, Addrs: policy.Addrs, Ifindex: 1, Condition: Enforced}
		if len(f.waiting) > 0 {
			s.Condition = Pending
		}
		if _, there := f.settings.Interfaces[policy.Iface]; f.settings.Interfaces != nil && !there {
			s.Ifindex, s.Condition = 0, NoInterface
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b EndpointStatus) int { return a.ID.Compare(b.ID) })
	return all
}

// Interfaces implements Dataplane.
func (f *Fake) Interfaces() map[string]uint32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state.Applies == 0 {
		return nil
	}
	return maps.Clone(f.settings.Interfaces)
}

// Ready implements Dataplane.
func (f *Fake) Ready() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.settings.Ready)
}

// Stats implements Dataplane.
func (f *Fake) Stats(bool) Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Stats{Enforced: len(f.state.Endpoints), Sets: len(f.state.Sets), Unwritten: len(f.waiting)}
}

// Sweep implements Dataplane.
func (f *Fake) Sweep() (time.Duration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Sweeps++
	return 2 * time.Second, f.settings.SweepErr
}

// Close implements Dataplane.
func (f *Fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Closed = true
	return nil
}
