// Package health gathers what the parts of the agent say of themselves, answers probes with it, and serves HTTP on an
// address of the node. It has no state of its own beyond one Aggregate.
package health

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Report is the state that a component reports.
type Report struct {
	Live   bool   // false: only a restart of the agent helps
	Ready  bool   // false: without this component the agent cannot do its work
	Detail string // one line: the problem or degradation; may be empty
}

// State is a component as it stands at one moment.
type State struct {
	Name   string    `json:"name"`
	Live   bool      `json:"live"`
	Ready  bool      `json:"ready"`
	Since  time.Time `json:"since"` // of Live and Ready as they are
	Detail string    `json:"detail,omitempty"`
}

// Aggregate holds the components of one agent. Safe for concurrent use.
type Aggregate struct {
	now func() time.Time

	mu         sync.Mutex // guards components, and their fields
	components []*Component
}

// Component is one part of the agent. Safe for concurrent use.
type Component struct {
	of       *Aggregate
	name     string
	deadline time.Duration // 0: it need not report again

	report   Report
	reported time.Time // the last time; before that, when it was added
	since    time.Time
}

// New returns an aggregate without components, which is live and not ready. now tells the time.
func New(now func() time.Time) *Aggregate { return &Aggregate{now: now} }

// Add adds a component, which is live and not ready until it reports. With a deadline it must report at least that
// often, from now on, or is neither live nor ready until it does; 0: its last report holds. It replaces a component of
// the same name, whose reports are ignored from then on: parts of the agent may be restarted.
func (a *Aggregate) Add(name string, deadline time.Duration) *Component {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	c := &Component{of: a, name: name, deadline: deadline, reported: now, since: now,
		report: Report{Live: true, Detail: "has not reported yet"}}
	if i := slices.IndexFunc(a.components, func(old *Component) bool { return old.name == name }); i >= 0 {
		a.components[i] = c
		return c
	}
	a.components = append(a.components, c)
	return c
}

// Report replaces what the component said last.
func (c *Component) Report(r Report) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	now := c.of.now()
	if before := c.state(now); before.Live != r.Live || before.Ready != r.Ready {
		c.since = now
	}
	r.Detail = oneLine(r.Detail)
	c.report, c.reported = r, now
}

// state is the component at that moment.
func (c *Component) state(now time.Time) State {
	s := State{Name: c.name, Live: c.report.Live, Ready: c.report.Ready, Since: c.since, Detail: c.report.Detail}
	silent := now.Sub(c.reported)
	if c.deadline == 0 || silent <= c.deadline {
		return s
	}
	if s.Live || s.Ready {
		s.Since = c.reported.Add(c.deadline)
	}
	s.Live, s.Ready = false, false
	s.Detail = fmt.Sprintf("silent for %s, must report every %s", silent.Round(time.Second), c.deadline)
	if c.report.Detail != "" {
		s.Detail += "; last: " + c.report.Detail
	}
	return s
}

// Components are all components as they stand now, in the order in which they were added. The list is the caller's.
func (a *Aggregate) Components() []State {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	list := make([]State, 0, len(a.components))
	for _, c := range a.components {
		list = append(list, c.state(now))
	}
	return list
}

// Live reports whether all components are live.
func (a *Aggregate) Live() bool { return live(a.Components()) }

// Ready reports whether there are components and all of them are ready.
func (a *Aggregate) Ready() bool { return ready(a.Components()) }

func live(list []State) bool {
	return !slices.ContainsFunc(list, func(s State) bool { return !s.Live })
}

func ready(list []State) bool {
	return len(list) > 0 && !slices.ContainsFunc(list, func(s State) bool { return !s.Ready })
}

// oneLine keeps the table one line a component, whatever an error says.
func oneLine(text string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c >= 0x7f && c < 0xa0 || c == '\u2028' || c == '\u2029' {
			return ' '
		}
		return c
	}, strings.ReplaceAll(text, "\n", "; "))
}
