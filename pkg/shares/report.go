package shares

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/margay-project/margay/pkg/model"
)

const (
	// lineEvery is the least time between two lines in the log.
	lineEvery = 30 * time.Second
	// lately is the time for which the losses of an endpoint are reported.
	lately = time.Minute
	// refresh is the time after which the numbers in the findings are replaced.
	refresh = 10 * time.Second
	// mostNamed bounds the endpoints that one line names.
	mostNamed = 3
)

// report sums up passes. The time is passed to its methods.
type report struct {
	removed   uint64                      // since the start
	losses    map[model.EndpointID]losses // of endpoints that have lost connections lately
	findings  map[model.EndpointID]string // never changed, only replaced
	refreshed time.Time
	unlogged  round // all passes since the last line, with the losers in pending
	pending   map[model.EndpointID]loser
	logged    time.Time // of the last line
}

// losses are those of one endpoint since it has begun to lose connections.
type losses struct {
	removed, share int
	last           time.Time
}

// add adds a pass. changed: the findings are others than before.
func (p *report) add(r round, now time.Time) (changed bool) {
	if p.losses == nil {
		p.losses, p.pending = map[model.EndpointID]losses{}, map[model.EndpointID]loser{}
	}
	before := len(p.losses)
	maps.DeleteFunc(p.losses, func(_ model.EndpointID, l losses) bool { return now.Sub(l.last) > lately })
	changed = len(p.losses) < before
	for _, l := range r.losers {
		p.pending[l.id] = loser{l.id, max(l.had, p.pending[l.id].had), p.pending[l.id].removed + l.removed}
		if l.id == (model.EndpointID{}) { // there is no status of it
			continue
		}
		known, ok := p.losses[l.id]
		changed = changed || !ok
		p.losses[l.id] = losses{known.removed + l.removed, r.share, now}
	}
	if r.all > 0 {
		p.removed += uint64(r.all)
		p.unlogged = round{entries: r.entries, limit: r.limit, share: r.share, all: p.unlogged.all + r.all}
		changed = changed || now.Sub(p.refreshed) >= refresh
	}
	if changed {
		p.refreshed, p.findings = now, p.texts()
	}
	return changed
}

// texts returns the findings about the losses as of now.
func (p *report) texts() map[model.EndpointID]string {
	all := make(map[model.EndpointID]string, len(p.losses))
	for id, l := range p.losses {
		all[id] = fmt.Sprintf("%d of its connections were removed: the kernel's table of connections was nearly full, and an endpoint could keep "+
			"%d; raise the sysctl net.netfilter.nf_conntrack_max if it needs more", l.removed, l.share)
	}
	return all
}

// line returns the attributes of a log line about the passes since the last one; nil: it is not due, or there is nothing to log.
func (p *report) line(now time.Time) []slog.Attr {
	if p.unlogged.all == 0 || !p.logged.IsZero() && now.Sub(p.logged) < lineEvery {
		return nil
	}
	most := slices.SortedFunc(maps.Values(p.pending), func(a, b loser) int {
		return cmp.Or(cmp.Compare(b.removed, a.removed), a.id.Compare(b.id))
	})
	var names []string
	for _, l := range most[:min(len(most), mostNamed)] {
		name := l.id.String()
		if l.id == (model.EndpointID{}) {
			name = "pods that have left, and packets from further sources,"
		}
		names = append(names, fmt.Sprintf("%s had %d and lost %d", name, l.had, l.removed))
	}
	if more := len(most) - mostNamed; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	r := p.unlogged
	p.unlogged, p.logged = round{}, now
	clear(p.pending)
	return []slog.Attr{slog.String("endpoints", strings.Join(names, "; ")), slog.Any("share", r.share), slog.Any("removed", r.all),
		slog.Any("connections", r.entries), slog.Any("most", r.limit)}
}
