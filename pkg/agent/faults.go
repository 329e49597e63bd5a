package agent

import "github.com/margay-project/margay/pkg/validate"

// nodeFaults are what interfaces and endpoints of this node show of a configuration that does not fit to it.
type nodeFaults struct {
	closed *closedInterfaces // interfaces without a pod: the node's name may be wrong
	absent *absentInterfaces // pods without an interface: the prefix may be wrong
}

func newNodeFaults(o Options) nodeFaults {
	return nodeFaults{closed: newClosedInterfaces(o.Node, o.Log, o.Graph.Nodes),
		absent: &absentInterfaces{node: o.Node, prefix: o.Settings.Config().InterfacePrefix, log: o.Log}}
}

// unready is the reason why the agent is not ready; empty: it is ready. The faults exclude each other: one is without pods of this node.
func (f nodeFaults) unready() string { return f.closed.unready() + f.absent.unready() }

// nodeProblem returns a message about a node as its problem; none if it is empty.
func nodeProblem(node, text string) []validate.Problem {
	if text == "" {
		return nil
	}
	return []validate.Problem{{Ref: validate.Ref{Kind: "Node", Name: node}, Severity: validate.Warning, Reason: text}}
}

func (f nodeFaults) problems() []validate.Problem {
	return append(f.closed.problems(), f.absent.problems()...)
}
