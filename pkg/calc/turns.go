package calc

import "cmp"

// A pod or a network set that changes may be found by 8,192 selectors, and of one namespace very many may change at once. So of those a flush
// replaces as many as come to about a certain amount of work, and the next ones the others. Objects of other namespaces do not wait for them, nor
// do deletions of pods, whose addresses may be others' by now.

// mostAtOnce is how often addresses of the objects of one namespace are counted into sets and out of them, in one flush: as one pod is with the
// most selectors, in some 60 ms with what is then compiled.
const mostAtOnce = 1 << 12

// turns is how much was done for each namespace in one flush.
type turns struct {
	sets *setIndex
	most int // 0: there is no bound
	by   map[string]int
}

// turns are those of a flush. Before the first one that is in force, and in the graph of a tool, there is no bound.
func (t *relabelTable) turns() *turns {
	n := &turns{sets: t.policies.sets, by: map[string]int{}}
	if t.inParts() {
		n.most = cmp.Or(t.atOnce, mostAtOnce)
	}
	return n
}

// has reports whether it is the turn of more objects of a namespace. Cluster-wide ones are not bounded.
func (t *turns) has(namespace string) bool {
	return t.most == 0 || namespace == "" || t.by[namespace] < t.most
}

// spend does something for a namespace, and counts it.
func (t *turns) spend(namespace string, do func()) {
	began := t.work()
	do()
	t.by[namespace] += t.work() - began
}

func (t *turns) work() int { return t.sets.counted + t.sets.selected.labels.Tried()/triesOfOne }

// waiting are the namespaces of objects whose turn is with a later flush.
func (p *pending) waiting() map[string]bool {
	namespaces := map[string]bool{}
	for id := range p.endpoints {
		namespaces[id.Namespace] = true
	}
	for id := range p.networkSets {
		namespaces[id.Namespace] = true
	}
	return namespaces
}
