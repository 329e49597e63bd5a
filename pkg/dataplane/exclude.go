package dataplane

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/margay-project/margay/pkg/compile"
	"github.com/margay-project/margay/pkg/model"
)

const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// exclusions are what the kernel refuses to take, while everything else goes on: tables, of which the compiler knows
// what their endpoints have instead, and entries of addresses. All are tried again after a while, which doubles with
// each failure, so that they cost the others little.
type exclusions struct {
	now     func() time.Time
	wait    time.Duration // before the next attempt; 0: nothing is excluded
	next    time.Time
	failing bool // the compiler goes without a table
	again   bool // it is to plan once more, though nothing has changed

	addrs  map[netip.Prefix]unwritten
	closed map[model.EndpointID]string // must not be open because of addrs, and why
	rest   []error                     // of writes on which nothing depends, since the last Apply
}

// unwritten is an entry that could not be written.
type unwritten struct {
	change compile.AddrChange
	cause  error
}

func newExclusions() *exclusions {
	return &exclusions{now: time.Now, addrs: map[netip.Prefix]unwritten{}, closed: map[model.EndpointID]string{}}
}

// failed takes note that something was refused, and puts off the next attempt.
func (x *exclusions) failed() {
	if now := x.now(); !now.Before(x.next) {
		x.wait = min(max(2*x.wait, firstRetry), lastRetry)
		x.next = now.Add(x.wait)
	}
}

// due reports whether to try again what was refused.
func (x *exclusions) due() bool {
	if !x.failing && len(x.addrs) == 0 {
		x.wait, x.next = 0, time.Time{}
		return false
	}
	return !x.now().Before(x.next)
}

// missing reports whether an address has no entry because it could not be written.
func (x *exclusions) missing(p netip.Prefix) bool {
	_, ok := x.addrs[p]
	return ok
}

// err says what is missing and what that closes.
func (x *exclusions) err() error {
	const most = 16
	errs := x.rest
	x.rest = nil
	for i, p := range slices.SortedFunc(maps.Keys(x.addrs), netip.Prefix.Compare) {
		if i == most {
			errs = append(errs, fmt.Errorf("and %d more addresses", len(x.addrs)-most))
			break
		}
		errs = append(errs, fmt.Errorf("write map %s: %s belongs to no set and no endpoint: %w", addrMap(p), p, x.addrs[p].cause))
	}
	return errors.Join(errs...)
}

// retryTables has tables made again that were refused, if it is time.
func (d *BPF) retryTables() {
	if d.out.due() && d.out.failing {
		if d.out.again, d.out.failing = d.compiler.Retry(); d.out.failing && !d.out.again {
			d.out.failed()
		}
	}
}

// retryAddrs tries again to write addresses that were refused, if it is time.
func (d *BPF) retryAddrs() error {
	if len(d.out.addrs) == 0 || !d.out.due() {
		return nil
	}
	var changes []compile.AddrChange
	for _, u := range d.out.addrs {
		changes = append(changes, u.change)
	}
	slices.SortFunc(changes, func(a, b compile.AddrChange) int { return b.Prefix.Bits() - a.Prefix.Bits() })
	return d.writeAddrs(changes)
}

// withhold goes on without the tables that could not be published.
func (d *BPF) withhold(failed map[compile.TableID]error) {
	d.plan = d.compiler.Withhold(d.plan, failed)
	d.out.failing = true
	d.out.failed()
}

// cramped goes on with a table that has no room for some classes, and denies them.
func (d *BPF) cramped(table compile.TableID, cause error) {
	d.compiler.Short(table, cause)
	d.out.failing = true
	d.out.failed()
}

// lose closes the endpoints that a table judges which is not as it should be.
func (d *BPF) lose(table compile.TableID, cause error) error {
	d.unused = append(d.unused, d.tables[table].slot)
	delete(d.tables, table)
	d.compiler.Lose(table, cause)
	d.out.failing = true
	d.out.failed()
	var errs []error
	for _, ep := range d.bound {
		if slices.Contains(ep.tables[:], table) {
			errs = append(errs, d.shut(ep, cause))
		}
	}
	return errors.Join(errs...)
}

// shut closes an endpoint that cannot be what the plan says; program tries to open it again. An error is about closing
// it.
func (d *BPF) shut(ep *endpoint, cause error) error {
	if ep.policy != nil {
		ep.failure = cause.Error()
		d.dirty[ep.policy.ID] = true
	}
	return d.withdraw(ep)
}

// missed takes out what there is of addresses whose entries could not be written: with their old class they might be
// allowed what they are to be denied. From here on they are what a prefix around them is.
func (d *BPF) missed(changes []compile.AddrChange, cause error) error {
	for _, c := range changes {
		d.out.addrs[c.Prefix] = unwritten{c, cause}
		d.deleteAddr(c.Prefix)
	}
	d.out.failed()
	_ = d.syncAddrs() // a deletion that fails stays pending, and is told by writeLeft
	return d.closeWide()
}

// closeWide closes the endpoints that would take a missing address for one that they allow more than that address, and
// opens those that need not be closed for that any more.
func (d *BPF) closeWide() error {
	if len(d.out.addrs)+len(d.out.closed) == 0 {
		return nil
	}
	now, known := map[model.EndpointID]string{}, map[[2]uint32]bool{}
	for _, p := range slices.SortedFunc(maps.Keys(d.out.addrs), netip.Prefix.Compare) {
		taken, is := d.takenFor(p), d.out.addrs[p].change.Class
		if d.out.addrs[p].change.Gone {
			is = d.compiler.Around(p, d.out.missing)
		}
		if known[[2]uint32{taken, is}] {
			continue
		}
		known[[2]uint32{taken, is}] = true
		for _, id := range d.compiler.Wider(taken, is) {
			if now[id] == "" {
				now[id] = fmt.Sprintf("closed, since it would allow %s what it denies to it: write map %s: %v", p, addrMap(p), d.out.addrs[p].cause)
			}
		}
	}
	for id := range d.out.closed {
		if now[id] == "" {
			d.dirty[id] = true
		}
	}
	d.out.closed = now
	var errs []error
	for id, why := range now {
		if ep := d.bound[id]; ep != nil {
			errs = append(errs, d.shut(ep, errors.New(why)))
		}
	}
	return errors.Join(errs...)
}

// takenFor is the class that packets find for an address without an entry, or with one that could not be removed.
func (d *BPF) takenFor(p netip.Prefix) uint32 {
	if info, ok := d.believed(p); ok {
		return info.Class
	}
	return d.compiler.Around(p, d.out.missing)
}

// busyClasses are those that something in the kernel refers to which could not be removed.
func (d *BPF) busyClasses() map[uint32]bool {
	if len(d.out.addrs) == 0 && d.maps.ClassSets.Pending() == 0 {
		return nil
	}
	busy := map[uint32]bool{}
	for p := range d.out.addrs {
		if info, ok := d.believed(p); ok {
			busy[info.Class] = true
		}
	}
	for _, key := range d.maps.ClassSets.Unwritten() {
		busy[key.Class] = true
	}
	return busy
}
