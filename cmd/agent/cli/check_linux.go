package cli

import (
	"context"
	"errors"
	"os"

	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/inspect"
)

// node checks this node, and what its agent reads if one runs.
func (o *checkOptions) node(ctx context.Context, report *checkReport) error {
	if os.Geteuid() != 0 {
		return errors.New("check this node: this needs root; margay check --dir checks manifests without root")
	}
	mask, err := markBits(o.markMask)
	if err != nil {
		return err
	}
	probe := attach.Probe(o.bpffs)
	node := &nodeReport{Kernel: probe.Kernel, Dataplane: "bpf", Reason: "this kernel has everything it needs"}
	report.Node = node
	for _, c := range probe.Checks {
		node.Checks = append(node.Checks, nodeCheck{Name: c.Name, OK: c.OK(), Detail: c.Detail()})
	}
	if probe.Err() != nil {
		node.Dataplane, node.Reason = "", "the BPF dataplane cannot run here, see below; margay run refuses to start"
	}
	node.Checks = append(node.Checks, markCheck(mask), ipvsCheck())
	agent, err := o.agent(ctx, report)
	if err != nil {
		return err
	}
	node.Checks = append(node.Checks, agent)
	for _, c := range node.Checks {
		report.OK = report.OK && c.OK
	}
	return nil
}

// agent asks the running agent for its status and the problems of its objects.
func (o *checkOptions) agent(ctx context.Context, report *checkReport) (nodeCheck, error) {
	answer, err := o.ask(ctx, "/v1/status", nil)
	if errors.Is(err, inspect.ErrNotRunning) {
		report.Notes = append(report.Notes, "no agent answers on "+o.socketPath()+": the objects it reads were not checked")
		return o.orphanCheck()
	}
	if err != nil {
		return nodeCheck{}, err
	}
	check := nodeCheck{Name: "agent", OK: answer.Status.Ready, Detail: statusText(answer.Status)}
	for _, path := range []string{"/v1/problems", "/v1/lint"} {
		if answer, err = o.ask(ctx, path, nil); err != nil {
			return check, err
		}
		report.Problems = append(report.Problems, answer.Problems...)
	}
	if answer, err = o.ask(ctx, "/v1/endpoints", nil); err != nil {
		return check, err
	}
	for i := range answer.Endpoints {
		if answer.Endpoints[i].Condition == inspect.ConditionClosed {
			continue // among the problems, if it lasts
		}
		if text := endpointProblem(&answer.Endpoints[i]); text != "" {
			report.Problems = append(report.Problems, inspect.ProblemRow{
				Severity: "endpoint", Object: endpointName(&answer.Endpoints[i]), Reason: text,
			})
		}
	}
	return check, nil
}
