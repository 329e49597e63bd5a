package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/margay-project/margay/pkg/syncer"
)

// comparison looks for policies that the first of Calico's groups, which is read, leaves out of its lists, while the second has them:
// Calico's API server leaves out without an error those of tiers that the agent has no right to, and those of tiers that do not exist.
// It only reports them. No decision follows, because tenants may write such objects in the second group.
//
// An object counts when two looks have found it in the second group alone, since one that is made or deleted meanwhile looks the same.
type comparison struct {
	kind     *kind
	due      time.Time // of the next look; zero: the first group is not read
	confirms bool      // that look is to confirm the one before
	suspects []objectKey
	hidden   []objectKey // suspects of two looks
}

const (
	// compareEvery is the time between two looks, up to half as much longer. Of 5,000 agents one looks in 4 to 6 s.
	compareEvery = 6 * time.Hour
	// firstComparison is the longest time until the first look. Agents that start at once are spread over half of it.
	firstComparison = time.Hour
	// compareMost is how many objects a look asks for, compareSome those of one request: tenants decide about their metadata, of up to
	// 256 KiB for an object, and about their number.
	compareMost, compareSome = 10_000, 100
)

// compareGroups compares the groups until ctx ends.
func (s *Source) compareGroups(ctx context.Context) {
	var all []*comparison
	for _, k := range s.kinds {
		if k.Tiered && k.Required {
			all = append(all, &comparison{kind: k})
		}
	}
	for sleep(ctx, jitter(max(s.ProbeEvery, time.Second))) {
		for _, c := range all {
			c.step(ctx, time.Now())
		}
	}
}

// step looks if it is time for that, and reports.
func (c *comparison) step(ctx context.Context, now time.Time) {
	switch {
	case !c.kind.readsFirst():
		*c = comparison{kind: c.kind} // the status is of another place, and was written for it
		return
	case c.due.IsZero():
		c.due = now.Add(jitter(firstComparison))
	case now.Before(c.due):
	case c.kind.snapshot().State != syncer.KindSynced:
		return
	default:
		only, err := c.onlyInSecond(ctx)
		if err != nil {
			c.due = now.Add(jitter(firstComparison))
			c.kind.log.Debug("the second of Calico's groups cannot be compared with the first; the agent tries again later", "err", c.kind.source.client.Explain(err))
			return
		}
		was := len(c.hidden) > 0
		c.found(only, now)
		c.log(was)
	}
	c.hidden = c.kind.store.lacks(c.hidden) // what has come meanwhile is hidden no more
	c.kind.noteHidden(c.hidden)
}

// found adds the result of a look.
func (c *comparison) found(only []objectKey, now time.Time) {
	before := make(map[objectKey]struct{}, len(c.suspects))
	for _, key := range c.suspects {
		before[key] = struct{}{}
	}
	c.hidden, c.suspects = nil, only
	for _, key := range only {
		if _, ok := before[key]; ok {
			c.hidden = append(c.hidden, key)
		}
	}
	c.confirms = !c.confirms && len(c.hidden) < len(only)
	c.due = now
	if !c.confirms {
		c.due = now.Add(compareEvery/2 + jitter(compareEvery))
	}
}

// log logs once that there are hidden policies, and once that there are none any more.
func (c *comparison) log(was bool) {
	k := c.kind
	switch is := len(c.hidden) > 0; {
	case is && !was:
		k.log.Warn("policies are not in the lists of the first of Calico's groups, which is read, and not enforced; the second has them: "+
			"does the ClusterRole of the agent have the right without resourceNames, do their tiers exist, or is the second group left from before a migration?",
			"policies", len(c.hidden), "one", c.hidden[0].String(), "first", k.places[0].GroupVersion().String(), "right", k.TierResource().String(),
			"second", k.places[1].GroupVersion().String())
	case was && !is:
		k.log.Info("no policies are in the second of Calico's groups alone any more")
	}
}

// onlyInSecond are the objects that the second group has and the agent does not know, in order.
func (c *comparison) onlyInSecond(ctx context.Context) ([]objectKey, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	g, second := c.kind.source.groups, c.kind.places[1]
	if served, err := g.serves(ctx, second); err != nil || !served {
		return nil, err
	}
	names, err := g.client.FirstNames(ctx, second, compareSome, compareMost)
	if err != nil {
		return nil, err
	}
	keys := make([]objectKey, 0, len(names))
	for _, n := range names {
		keys = append(keys, objectKey{n.Namespace, n.Name})
	}
	return c.kind.store.lacks(keys), nil
}

// lacks returns the keys, in order, of which the store has no object under any of the names that a policy of the default tier can have.
func (s *store) lacks(keys []objectKey) (lacking []objectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		name := strings.TrimPrefix(key.name, "default.")
		_, plain := s.objects.Get(objectKey{key.namespace, name})
		_, tiered := s.objects.Get(objectKey{key.namespace, "default." + name})
		if !plain && !tiered {
			lacking = append(lacking, key)
		}
	}
	slices.SortFunc(lacking, func(a, b objectKey) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	return lacking
}

// readsFirst reports whether the first of two groups is read while both are served.
func (k *kind) readsFirst() bool { return k.snapshot().Read == k.places[0].GroupVersion().String() }

// noteHidden notes the objects that only the group that is not read has, unless the first is not read any more.
func (k *kind) noteHidden(hidden []objectKey) {
	other := k.places[1].GroupVersion().String()
	switch len(hidden) {
	case 0:
	case 1:
		other += ", which has one more: " + hidden[0].String()
	default:
		other += fmt.Sprintf(", which has %d more, %s among them", len(hidden), hidden[0])
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.status.Read != k.places[0].GroupVersion().String() || k.status.NotRead == other {
		return
	}
	k.status.NotRead = other
	k.source.noteReport()
}
