package calc

// Work is what a Flush worked out again, whether or not anything came of it.
type Work struct {
	Rules  int // of policies and profiles that apply on this node, by direction
	Groups int // of local endpoints that the same policies apply to
}

// Work is that of the last Flush.
func (g *Graph) Work() Work { return g.result.work }

// Sizes count the graph's objects, for metrics, as of the last Flush.
type Sizes struct {
	LocalEndpoints  int // enforced on this node
	RemoteEndpoints int // of other nodes, and those of this one that are not enforced
	Policies        int // of the whole cluster
	Profiles        int
	Services        int
	Sets            int // address sets that rules of this node refer to
	Members         int // of these sets together
}

// Sizes counts. It looks at every set once, at nothing else.
func (g *Graph) Sizes() Sizes {
	s := Sizes{
		LocalEndpoints:  len(g.local.endpoints),
		RemoteEndpoints: g.endpoints.Len() - len(g.local.endpoints),
		Policies:        g.policies.Len(),
		Profiles:        g.profiles.Len() - 1, // without the one that is built in
		Services:        len(g.services),
		Sets:            len(g.sets.byID),
	}
	for _, set := range g.sets.byID {
		s.Members += set.len()
	}
	return s
}
