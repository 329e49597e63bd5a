package calc

// nodeNames gives names of nodes numbers while endpoints refer to them: every endpoint of the cluster has one.
type nodeNames struct {
	byName map[string]nodeNumber
	names  []string // by number
	refs   []int
	free   []nodeNumber
}

type nodeNumber uint32

func newNodeNames() *nodeNames { return &nodeNames{byName: map[string]nodeNumber{}} }

// hold returns the name's number, for one more endpoint.
func (n *nodeNames) hold(name string) nodeNumber {
	num, ok := n.byName[name]
	switch {
	case ok:
	case len(n.free) > 0:
		num = n.free[len(n.free)-1]
		n.free = n.free[:len(n.free)-1]
	default:
		num = nodeNumber(len(n.names))
		n.names, n.refs = append(n.names, ""), append(n.refs, 0)
	}
	n.byName[name], n.names[num] = num, name
	n.refs[num]++
	return num
}

// drop is called when an endpoint is gone.
func (n *nodeNames) drop(num nodeNumber) {
	if n.refs[num]--; n.refs[num] > 0 {
		return
	}
	delete(n.byName, n.names[num])
	n.names[num] = ""
	n.free = append(n.free, num)
}
