package kubernetes

import (
	"context"
	"log/slog"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/margay-project/margay/pkg/kube"
)

// groups asks the server for what authority decides by, for all kinds of Calico's together.
type groups struct {
	client    *kube.Client
	discovery *discovery
	log       *slog.Logger
	// kinds are those whose objects count: served in both groups, cluster-wide, and required, so that nothing is decided without
	// them that would not wait for them anyway.
	kinds []*kind

	relisting *relisting

	asking chan struct{} // holds a token while the fields below are in use

	authority authority
	against   string    // why the first is not read, by the last look: evidence.against
	looked    time.Time // the last look
	logged    bool      // the log knows that the second is read while both are served
}

func newGroups(client *kube.Client, discovery *discovery, log *slog.Logger) *groups {
	return &groups{client: client, discovery: discovery, log: log, relisting: newRelisting(), asking: make(chan struct{}, 1)}
}

// add makes the objects of a kind count, if no tenant can write them.
func (g *groups) add(k *kind) {
	if len(k.places) > 1 && !k.Namespaced && k.Required {
		g.kinds = append(g.kinds, k)
	}
}

// note learns from an answer of discovery which of the groups are served. One without any of the kinds that count is not. That a group is
// not served is believed of a server that was ready before, see locate: another one may not know all groups yet.
func (g *groups) note(ctx context.Context, answer *metav1.APIGroupList, ready bool) {
	var served [2]bool
	for i := range served {
		gv := g.version(i)
		if !serves(answer, gv) {
			continue
		}
		list, err := g.discovery.Resources(ctx, gv)
		if err != nil {
			return
		}
		served[i] = slices.ContainsFunc(g.kinds, func(k *kind) bool { return hasResource(list, k.Resource) })
	}
	if g.begin(ctx) {
		switch {
		case ready:
			g.authority = g.authority.served(served[0], served[1])
		case g.authority == firstIsNext && !served[0]:
			g.authority = readsSecond
		}
		g.logged = g.logged && served[0] && served[1]
		g.end()
	}
}

// place returns which of the two places of a kind is read while both are served, and why not the first. It looks only
// if nothing has been decided yet, or if the last look is older than age and could change something.
func (g *groups) place(ctx context.Context, age time.Duration) (place int, against string, err error) {
	if !g.begin(ctx) {
		return 0, "", ctx.Err()
	}
	defer g.end()
	if g.authority == undecided || g.authority != readsFirst && age > 0 && time.Since(g.looked) >= age {
		err = g.look(ctx)
	}
	return g.authority.place(), g.against, err
}

// look decides by what there is now. If it fails, what was decided stays.
func (g *groups) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var e evidence
	for _, k := range g.kinds {
		second, err := g.names(ctx, k.places[1]) // before the first: what is made meanwhile, behind one server, is in both
		if err != nil {
			return err
		}
		first, err := g.names(ctx, k.places[0])
		if right, refused := kube.TierRight(err); refused && e.refused(right.Resource) {
			continue
		}
		if err != nil {
			return err
		}
		if e.note(k.Name, first, second); e.missing != "" {
			break
		}
	}
	g.decide(e)
	return nil
}

// decide acts on the evidence of a look.
func (g *groups) decide(e evidence) {
	was := g.authority
	g.authority, g.against, g.looked = was.after(e), e.against(), time.Now()
	switch {
	case g.authority == readsFirst && was == undecided, g.logged && g.authority != readsFirst:
	case e.lack() != "" && g.authority != readsFirst:
		g.logged = true
		g.log.Warn("Calico's kinds are served in two groups; the agent reads the second, because the first lacks a cluster-wide object",
			"first", g.version(0).String(), "lacks", e.lack(), "second", g.version(1).String())
	case e.right != "" && g.authority != readsFirst:
		g.logged = true
		g.log.Warn("Calico's kinds are served in two groups; the agent reads the second, because Calico's API server does not let it read the policies "+
			"of any tier of the first; grant it the right to get, list and watch, without resourceNames",
			"first", g.version(0).String(), "right", e.right+"."+g.version(0).Group, "second", g.version(1).String())
	case was != undecided && g.authority == readsFirst:
		g.logged = false
		g.log.Info("the first of Calico's groups has every cluster-wide object of the second; the agent reads the first from now on",
			"first", g.version(0).String(), "second", g.version(1).String())
	}
}

// names are those of the objects of a resource; none if it is not served.
func (g *groups) names(ctx context.Context, gvr schema.GroupVersionResource) ([]string, error) {
	if served, err := g.serves(ctx, gvr); err != nil || !served {
		return nil, err
	}
	return g.client.Names(ctx, gvr)
}

// serves reports whether the server has a resource.
func (g *groups) serves(ctx context.Context, gvr schema.GroupVersionResource) (bool, error) {
	answer, err := g.discovery.Groups(ctx)
	if err != nil || !serves(answer, gvr.GroupVersion()) {
		return false, err
	}
	list, err := g.discovery.Resources(ctx, gvr.GroupVersion())
	return err == nil && hasResource(list, gvr.Resource), err
}

// version is the first or the second group, with its version.
func (g *groups) version(i int) schema.GroupVersion { return g.kinds[0].places[i].GroupVersion() }

// begin reports false if ctx ended before it was this one's turn.
func (g *groups) begin(ctx context.Context) bool {
	select {
	case g.asking <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (g *groups) end() { <-g.asking }
