package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/inspect"
)

// node checks this node, and what its agent reads if one runs.
func (o *checkOptions) node(ctx context.Context, report *checkReport) error {
	if os.Geteuid() != 0 {
		return errors.New("check this node: this needs root; margay check --dir checks manifests without root")
	}
	bits, err := markBits(o.markMask)
	if err != nil {
		return err
	}
	iptablesBits, err := config.ParseIptablesMarkMask(o.iptablesMask)
	if err != nil {
		return fmt.Errorf("--iptables-mark-mask %q: %w", o.iptablesMask, err)
	}
	node, err := nodeChecks(ctx, o.bpffs, bits, iptablesBits)
	if err != nil {
		return err
	}
	report.Node = node
	agent, err := o.agent(ctx, report)
	if err != nil {
		return err
	}
	node.Checks = append(node.Checks, agent)
	report.OK = report.OK && node.problems() == 0
	return nil
}

// nodeChecks looks at what each dataplane needs, and says which one auto takes. bits and iptablesBits are those of marks that each uses.
func nodeChecks(ctx context.Context, bpffs string, bits, iptablesBits uint32) (*nodeReport, error) {
	probe := attach.Probe(bpffs)
	node := &nodeReport{Kernel: probe.Kernel}
	for _, c := range probe.Checks {
		node.Checks = append(node.Checks, nodeCheck{Name: c.Name, Dataplane: "bpf", OK: c.OK(), Detail: c.Detail()})
	}
	ctx, cancel := context.WithTimeout(ctx, iptablesPatience)
	defer cancel()
	parts, checks := openIPTablesParts(ctx, "auto")
	if parts.tools != nil {
		checks = append(checks, tablesCheck(parts.tools.Readable(ctx, "mangle", "filter")))
	}
	for _, c := range checks {
		c.Dataplane = "iptables"
		node.Checks = append(node.Checks, c)
	}
	node.choose(probe.Err(), kernelLacks(probe), missing(checks))
	if node.Dataplane == "iptables" {
		node.Checks = append(node.Checks, markCheck(iptablesBits, "--iptables-mark-mask"))
	} else {
		node.Checks = append(node.Checks, markCheck(bits, "--mark-mask"))
	}
	if node.Dataplane != "iptables" {
		node.Checks = append(node.Checks, ipvsCheck())
	}
	return node, parts.close()
}

// tablesCheck says whether the tables that the iptables dataplane writes into can be read, which a start needs.
func tablesCheck(err error) nodeCheck {
	check := nodeCheck{Name: "tables", OK: err == nil}
	if err != nil {
		check.Detail = oneLine(err)
	}
	return check
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
				Severity: inspect.SeverityEndpoint, Object: endpointName(&answer.Endpoints[i]), Reason: text,
			})
		}
	}
	return check, nil
}
