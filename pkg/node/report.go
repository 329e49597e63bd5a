// Package node is what one agent does on its node: it chooses and opens the dataplane, hands over from the one that enforced before,
// removes what agents have left, and checks what enforcement needs.
package node

// Report says whether this node can enforce, and how.
type Report struct {
	Kernel    string   `json:"kernel"`
	Dataplane string   `json:"dataplane"` // what enforces or would; empty: none can run
	Reason    string   `json:"reason"`
	Checks    []Result `json:"checks"`
}

// Result is one thing looked at on this node.
type Result struct {
	Name      string `json:"name"`
	Dataplane string `json:"dataplane,omitempty"` // the one that needs it; empty: all
	OK        bool   `json:"ok"`
	Detail    string `json:"detail,omitempty"`
}

// choose notes the dataplane that an agent would enforce with, given the configured one and what each lacks; kernel is what BPF lacks for
// want of another kernel.
func (n *Report) choose(configured string, bpf, kernel, iptables error) {
	switch {
	case configured == "bpf", configured == "iptables":
		n.Dataplane, n.Reason = configured, "it is configured"
		if configured == "bpf" && bpf != nil || configured == "iptables" && iptables != nil {
			n.Reason = "it is configured and cannot run here, see below; margay run refuses to start"
		}
	case configured == "record":
		n.Dataplane, n.Reason = configured, "it is configured, enforces nothing, and needs nothing of the kernel"
	case bpf == nil:
		n.Dataplane, n.Reason = "bpf", "this kernel has everything it needs"
	case kernel == nil:
		n.Reason = "the BPF dataplane could run on this kernel, but not as things are, see below; margay run refuses to start unless --dataplane iptables is given"
	case iptables == nil:
		n.Dataplane, n.Reason = "iptables", kernel.Error()
	default:
		n.Reason = "neither dataplane can run here, see below; margay run refuses to start"
	}
}

// Counts reports whether a failed check is a problem: what only the other dataplane needs is none.
func (n *Report) Counts(c Result) bool {
	return !c.OK && (c.Dataplane == "" || n.Dataplane == "" || c.Dataplane == n.Dataplane)
}

// Problems counts the failed checks that matter.
func (n *Report) Problems() int {
	failed := 0
	for _, c := range n.Checks {
		if n.Counts(c) {
			failed++
		}
	}
	return failed
}
