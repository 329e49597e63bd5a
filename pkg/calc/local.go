package calc

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/labelindex"
	"github.com/margay-project/margay/pkg/model"
)

// The index of the node has the endpoints of this node that are enforced, and the selectors of policies.
type (
	nodeIndex       = labelindex.Index[model.EndpointID, subjects]
	localItem       = labelindex.Item[model.EndpointID, subjects]
	localGroup      = labelindex.Group[model.EndpointID, subjects]
	policySelection = labelindex.Selection[model.EndpointID, subjects]
)

// subjects are the policies that apply to what a selector selects on this node.
type subjects struct {
	first  *policy    // nil: none
	others *[]*policy // in the order in which they came; nil: none, as of most
}

// policies yields them.
func (s *subjects) policies() iter.Seq[*policy] {
	return func(yield func(*policy) bool) {
		if s.first == nil || !yield(s.first) || s.others == nil {
			return
		}
		for _, p := range *s.others {
			if !yield(p) {
				return
			}
		}
	}
}

func (s *subjects) add(p *policy) {
	switch {
	case s.first == nil:
		s.first = p
	case s.others == nil:
		s.others = &[]*policy{p}
	default:
		*s.others = append(*s.others, p)
	}
}

// remove takes a policy out, and reports whether it was the last.
func (s *subjects) remove(p *policy) (last bool) {
	if s.first == p {
		if s.first = nil; s.others == nil {
			return true
		}
		s.first = (*s.others)[0]
		*s.others = slices.Delete(*s.others, 0, 1)
	} else if s.others != nil {
		*s.others = slices.DeleteFunc(*s.others, func(other *policy) bool { return other == p })
	}
	if s.others != nil && len(*s.others) == 0 {
		s.others = nil
	}
	return s.first == nil
}

// active reports whether the selector matched anything when the policies were last looked at: then each of them was active.
func (s *subjects) active() bool { return s.first != nil && s.first.active != nil }

// localIndex holds the endpoints of this node and the policies that apply to them.
type localIndex struct {
	labels    *nodeIndex // of local endpoints and policy selectors
	endpoints map[model.EndpointID]*localEndpoint

	sources   map[model.EndpointID][]netip.Prefix // further ones, of those that list any
	resourced bool                                // sources have changed, see enforcement.coverSources
}

// localEndpoint is an endpoint of this node that is enforced.
type localEndpoint struct {
	localItem // in the index of the node
	iface     string
	addrs     []netip.Addr
	sources   []netip.Prefix
	desired   *model.EndpointPolicy // as of the last flush; nil if there was none
	applied   bool                  // that flush, or an earlier one, has returned it
}

func newLocalIndex(cluster *clusterIndex) *localIndex {
	return &localIndex{labels: labelindex.New[model.EndpointID, subjects](cluster.ParentLabels), endpoints: map[model.EndpointID]*localEndpoint{},
		sources: map[model.EndpointID][]netip.Prefix{}}
}

// setSources notes the further sources of a local endpoint.
func (x *localIndex) setSources(id model.EndpointID, now []netip.Prefix) {
	if slices.Equal(x.sources[id], now) {
		return
	}
	x.resourced = true
	if delete(x.sources, id); len(now) > 0 {
		x.sources[id] = now
	}
}

// regroup notes the policies that depend on a group of the node's index which was created or removed.
func (t *policyTable) regroup(gr *localGroup) {
	t.dirty.groups[gr] = struct{}{}
	for s := range gr.Selections() {
		t.dirty.selections[s] = struct{}{}
	}
	for name := range gr.Parents() {
		t.dirty.profile(name)
	}
}
