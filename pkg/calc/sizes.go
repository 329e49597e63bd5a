package calc

// Sizes are numbers of what the graph has, for metrics. They are as of the last Flush.
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
		Profiles:        g.profiles.Len(),
		Services:        len(g.services),
		Sets:            len(g.sets.byID),
	}
	for _, set := range g.sets.byID {
		s.Members += set.members.len()
	}
	return s
}
