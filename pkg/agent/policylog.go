package agent

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/margay-project/margay/pkg/model"
)

// Bounds of the lines about policies: a tenant can change its policies as often as it likes.
const (
	policyWindow    = time.Minute
	policyLines     = 60      // in one window
	namespaceLines  = 10      // of them of one namespace
	mostNotedPolicy = 4096    // updates between two flushes that are looked at one by one, and changes that wait to be enforced
	mostCompared    = 1 << 16 // policies of endpoints that are compared after a flush: 3 ms
)

// policyLog logs at level info the policies that have changed this node's enforcement, once the change is enforced. These
// are policies that apply to endpoints of this node, and only if their rules or their endpoints have changed.
type policyLog struct {
	log *slog.Logger

	noted   map[model.PolicyKey]bool                   // updated since the last flush
	later   map[model.PolicyKey]bool                   // updated before that, and postponed
	local   map[model.EndpointID]*model.EndpointPolicy // as of the last flush
	pending map[model.PolicyKey]*policyChange          // flushed and not enforced; bounded, since nothing may be enforced for long
	crowded bool                                       // there were more than pending has room for
	since   time.Time                                  // of the oldest of pending

	window   time.Time // when it began
	lines    int
	bySpace  map[string]int
	withheld int
	overflow bool // it is logged that there were more than pending has room for
}

// policyChange is the change of one policy on this node.
type policyChange struct {
	before, after bool // it applied to an endpoint
	endpoints     map[model.EndpointID]bool
}

func newPolicyLog(log *slog.Logger) *policyLog {
	return &policyLog{log: log, noted: map[model.PolicyKey]bool{}, later: map[model.PolicyKey]bool{}, local: map[model.EndpointID]*model.EndpointPolicy{},
		pending: map[model.PolicyKey]*policyChange{}, bySpace: map[string]int{}}
}

// Observe implements observer.
func (p *policyLog) Observe(o Outcome) {
	p.note(o.Batch.Policies)
	if o.Flush != nil {
		p.flushed(o.Flush.Changes, o.Flush.First, o.Started)
		p.forget(o.Flush.Postponed)
	}
	if o.Apply != nil && o.Apply.Err == nil {
		p.enforced(o.Ended)
	}
	if o.Facts != nil {
		p.tick(o.Ended)
	}
}

// note records policies that the graph is given.
func (p *policyLog) note(keys []model.PolicyKey) {
	for _, key := range keys {
		if len(p.noted) < mostNotedPolicy {
			p.noted[key] = true
		}
	}
}

// flushed records what the updates came to. With silent, as for the first snapshot, nothing is said of it.
func (p *policyLog) flushed(changes model.Changes, silent bool, now time.Time) {
	if len(p.noted)+len(p.later) > 0 && !silent {
		left := mostCompared
		for id, after := range changes.Endpoints {
			left -= p.compare(id, p.local[id], after, left)
		}
	}
	if len(p.pending) > 0 && p.since.IsZero() {
		p.since = now
	}
	for id, policy := range changes.Endpoints {
		if policy == nil {
			delete(p.local, id)
		} else {
			p.local[id] = policy
		}
	}
}

// forget ends what a flush has followed: the updates since the one before, but for those that it has postponed.
func (p *policyLog) forget(postponed []model.PolicyKey) {
	later := map[model.PolicyKey]bool{}
	for _, updated := range []map[model.PolicyKey]bool{p.later, p.noted} {
		if len(updated) == 0 {
			continue
		}
		for _, key := range postponed {
			if len(later) < mostNotedPolicy && updated[key] {
				later[key] = true
			}
		}
	}
	p.later = later
	clear(p.noted)
}

// compare records noted policies that one endpoint has in another form than before, and returns how many policies that has made it look at;
// it looks at none if these are more than most. Equal rules are one pointer.
func (p *policyLog) compare(id model.EndpointID, was, is *model.EndpointPolicy, most int) (looks int) {
	for _, d := range []model.Direction{model.Ingress, model.Egress} {
		before, after := differing(tiersOf(was, d), tiersOf(is, d))
		if looks += len(before) + len(after); looks > most {
			p.crowded = true
			return most
		}
		noted := map[model.PolicyKey][2]*model.PolicyRules{}
		for i, list := range [][]*model.PolicyRules{before, after} {
			for _, r := range list {
				if p.noted[r.Key] || p.later[r.Key] {
					both := noted[r.Key]
					both[i] = r
					noted[r.Key] = both
				}
			}
		}
		for key, both := range noted {
			if both[0] != both[1] {
				p.change(key, id, both[0] != nil, both[1] != nil)
			}
		}
	}
	return looks
}

func (p *policyLog) change(key model.PolicyKey, id model.EndpointID, before, after bool) {
	c := p.pending[key]
	if c == nil && len(p.pending) >= mostNotedPolicy {
		p.crowded = true
		return
	}
	if c == nil {
		c = &policyChange{endpoints: map[model.EndpointID]bool{}}
		p.pending[key] = c
	}
	c.before, c.after = c.before || before, c.after || after
	c.endpoints[id] = true
}

// tiersOf are the tiers of one direction of an endpoint, which may be nil.
func tiersOf(ep *model.EndpointPolicy, d model.Direction) []model.TierPolicy {
	switch {
	case ep == nil:
		return nil
	case d == model.Egress:
		return ep.Egress.Tiers
	}
	return ep.Ingress.Tiers
}

// differing are the policies of two lists of tiers, without the first and the last ones of each tier that are the same in both. A tenant may
// have thousands that apply to each of a hundred pods, and change one of them all the time; enforcement waits for this.
func differing(was, is []model.TierPolicy) (before, after []*model.PolicyRules) {
	for i := range max(len(was), len(is)) {
		var a, b []*model.PolicyRules
		if i < len(was) {
			a = was[i].Policies
		}
		if i < len(is) {
			b = is[i].Policies
		}
		for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
			a, b = a[1:], b[1:]
		}
		for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
			a, b = a[:len(a)-1], b[:len(b)-1]
		}
		before, after = append(before, a...), append(after, b...)
	}
	return before, after
}

// enforced logs the pending changes that are enforced now.
func (p *policyLog) enforced(now time.Time) {
	if len(p.pending) == 0 && !p.crowded {
		return
	}
	took := now.Sub(p.since)
	order := func(a, b model.PolicyKey) int { return strings.Compare(a.SortKey(), b.SortKey()) }
	for _, key := range slices.SortedFunc(maps.Keys(p.pending), order) {
		p.write(key, p.pending[key], took, now)
	}
	if p.tick(now); p.crowded && !p.overflow {
		if p.overflow = true; p.window.IsZero() {
			p.window = now
		}
		p.log.Info("more policies have changed since policy was last enforced than the log can name", "named", len(p.pending))
	}
	clear(p.pending)
	p.crowded, p.since = false, time.Time{}
}

func (p *policyLog) write(key model.PolicyKey, c *policyChange, took time.Duration, now time.Time) {
	p.tick(now)
	if p.lines >= policyLines || p.bySpace[key.Namespace] >= namespaceLines {
		p.withheld++
		return
	}
	if p.window.IsZero() {
		p.window = now
	}
	p.lines++
	p.bySpace[key.Namespace]++
	what := "policy changed"
	switch {
	case !c.before:
		what = "policy added"
	case !c.after:
		what = "policy removed"
	}
	_, kind := key.Kind.API()
	p.log.Info(what, "policy", kind+" "+strings.TrimPrefix(key.Namespace+"/"+key.Name, "/"), "endpoints", len(c.endpoints), "took", took)
}

// tick ends a window that is over. To be called now and then.
func (p *policyLog) tick(now time.Time) {
	if p.window.IsZero() || now.Sub(p.window) < policyWindow {
		return
	}
	if p.withheld > 0 {
		p.log.Info("policies changed that are not logged one by one", "more", p.withheld, "within", policyWindow)
	}
	p.window, p.lines, p.withheld, p.overflow = time.Time{}, 0, 0, false
	clear(p.bySpace)
}
