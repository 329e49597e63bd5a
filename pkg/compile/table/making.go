package table

import (
	"iter"
	"math"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
)

// Making is a Build that is taken in parts, so that somebody else's turn comes in between. It is a coroutine, not a second
// thread: nothing happens but in GoOn.
type Making struct {
	breaks *breaks
	late   *[]classes.Class
	next   func() (struct{}, bool)
	stop   func()
	table  *Table
	done   bool
}

// Begin begins to make the table that Build would.
func Begin(p *match.Program, known classes.List, lim Limits) *Making {
	m := &Making{breaks: &breaks{}, late: new([]classes.Class)}
	m.next, m.stop = iter.Pull(func(yield func(struct{}) bool) {
		m.breaks.pause = func() bool { return yield(struct{}{}) }
		m.table = build(p, known, lim, m.breaks, m.late)
		m.done = !m.breaks.stopped
	})
	return m
}

// GoOn works for so many units of some 25 ns, and a little longer, and reports whether the table is made. Classes that have
// come to be known since Begin, or the last GoOn, are in late, in their order: the table has rows for them, too.
func (m *Making) GoOn(units int, late []classes.Class) (done bool) {
	if m.done {
		return true
	}
	*m.late = append(*m.late, late...)
	m.breaks.left = units
	m.next()
	return m.done
}

// Left is how much of the last GoOn's units is left.
func (m *Making) Left() int { return max(m.breaks.left, 0) }

// Table returns the finished table, as Build would.
func (m *Making) Table() *Table { return m.table }

// Stop gives up. It may be called at any time, more than once.
func (m *Making) Stop() { m.stop() }

// breaks are where making a table may stop for a while.
type breaks struct {
	left    int
	pause   func() bool // nil: never; false: stop
	stopped bool
}

// spend records work that is done, and makes a break if it is time for one. False: it is to end, whatever is missing.
func (b *breaks) spend(units int) bool {
	if b.left -= units; b.left < 0 && b.pause != nil && !b.stopped {
		b.stopped = !b.pause()
	}
	return !b.stopped
}

// endless are breaks that never come.
func endless() *breaks { return &breaks{left: math.MaxInt} }
