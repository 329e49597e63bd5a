package cli

// nodeReport says whether this node can enforce, and how.
type nodeReport struct {
	Kernel    string      `json:"kernel"`
	Dataplane string      `json:"dataplane"` // what would be chosen; empty: none can run
	Reason    string      `json:"reason"`
	Checks    []nodeCheck `json:"checks"`
}

// nodeCheck is one thing looked at on this node.
type nodeCheck struct {
	Name      string `json:"name"`
	Dataplane string `json:"dataplane,omitempty"` // the one that needs it; empty: all
	OK        bool   `json:"ok"`
	Detail    string `json:"detail,omitempty"`
}

// choose notes the dataplane that auto takes, given what each lacks; kernel is what BPF lacks for want of another kernel.
func (n *nodeReport) choose(bpf, kernel, iptables error) {
	switch {
	case bpf == nil:
		n.Dataplane, n.Reason = "bpf", "this kernel has everything it needs"
	case kernel == nil:
		n.Reason = "the BPF dataplane could run on this kernel, but not as things are, see below; margay run refuses to start"
	case iptables == nil:
		n.Dataplane, n.Reason = "iptables", kernel.Error()
	default:
		n.Reason = "neither dataplane can run here, see below; margay run refuses to start"
	}
}

// counts reports whether a failed check is a problem: what only the other dataplane needs is none.
func (n *nodeReport) counts(c nodeCheck) bool {
	return !c.OK && (c.Dataplane == "" || n.Dataplane == "" || c.Dataplane == n.Dataplane)
}

// problems counts the failed checks that matter.
func (n *nodeReport) problems() int {
	failed := 0
	for _, c := range n.Checks {
		if n.counts(c) {
			failed++
		}
	}
	return failed
}
