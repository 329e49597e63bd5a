package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/node"
)

// checkPatience is how long an agent may take to say how it is before the rest of the node is checked without it.
const checkPatience = 20 * time.Second

// node checks this node, and what its agent reads if one runs.
func (o *checkOptions) node(cmd *cobra.Command, report *checkReport) error {
	if os.Geteuid() != 0 {
		return errors.New("check this node: this needs root; margay check --dir checks manifests without root")
	}
	ctx := cmd.Context()
	c, refused, err := o.config(cmd)
	if err != nil {
		return err
	}
	of := &instanceFlags{instance: c.Instance, bpffs: c.BPFFS, socket: c.Socket}
	answer, asked := of.askWithin(ctx, checkPatience, "/v1/status", nil)
	if asked == nil { // what it enforces with is not a matter of this command's flags
		c.Dataplane, _, _ = strings.Cut(answer.Status.Dataplane, "-")
	}
	found, err := node.Check(ctx, c)
	if err != nil {
		return err
	}
	report.Node = found
	if asked == nil {
		found.Reason = "the running agent enforces with " + answer.Status.Dataplane
		if why := answer.Status.Chosen.Reason; why != "" {
			found.Reason += ": " + why
		}
	}
	if refused != nil && errors.Is(asked, inspect.ErrNotRunning) { // an agent that runs reports it by itself
		found.Checks = append(found.Checks, node.Result{Name: "configuration", Detail: strings.ReplaceAll(refused.Error(), "\n", "; ")})
	}
	agent, err := of.agent(ctx, report, answer, asked)
	if err != nil {
		return err
	}
	found.Checks = append(found.Checks, agent)
	report.OK = report.OK && found.Problems() == 0
	return nil
}

// config returns the settings that an agent started now would have. refused is why it would not start with them: its file or directory
// cannot be read, and then they are those of the rest, or no agent can start with them. Without valid flags and variables there is nothing
// to check.
func (o *checkOptions) config(cmd *cobra.Command) (c config.Config, refused, err error) {
	layers, warnings, refused := o.settings.layers()
	if refused != nil {
		if layers, err = o.settings.layersWithoutFile(); err != nil {
			return c, nil, err
		}
		return layers.Config(), refused, nil
	}
	for _, w := range warnings {
		fmt.Fprintln(cmd.ErrOrStderr(), "margay: warning:", w)
	}
	if refused = withDirectory(cmd.Context(), cmd.ErrOrStderr(), layers); refused == nil {
		refused = unusable(layers.Config())
	}
	return layers.Config(), refused, nil
}

// agent asks the running agent for the problems of its objects. answer and err are what it has answered about its status.
func (f *instanceFlags) agent(ctx context.Context, report *checkReport, answer *inspect.Answer, err error) (node.Result, error) {
	if errors.Is(err, inspect.ErrNotRunning) || errors.Is(err, inspect.ErrSilent) {
		report.Notes = append(report.Notes, "no agent answers on "+f.socketPath()+": the objects it reads were not checked")
		return f.orphanCheck(err)
	}
	if err != nil {
		return node.Result{}, err
	}
	check := node.Result{Name: "agent", OK: answer.Status.Ready, Detail: statusText(answer.Status)}
	for _, path := range []string{"/v1/problems", "/v1/lint"} {
		answer, err = f.ask(ctx, path, nil)
		if errors.Is(err, inspect.ErrNoSnapshot) {
			report.Notes = append(report.Notes, "the agent has not read the datastore yet: the objects were not checked")
			return check, nil
		}
		if err != nil {
			return check, err
		}
		report.Problems = append(report.Problems, answer.Problems...)
	}
	if answer, err = f.ask(ctx, "/v1/endpoints", nil); err != nil {
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

// orphanCheck is how it stands with an agent that does not answer; asked is its error. None is needed where nothing is enforced; what an
// earlier one left enforced is cut off from every change, and one that runs and cannot be asked was not checked.
func (f *instanceFlags) orphanCheck(asked error) (node.Result, error) {
	check := node.Result{Name: "agent"}
	attached, found, err := node.Orphaned(f.config())
	if err != nil {
		return check, err
	}
	if says := f.unanswered(asked); says != "" {
		check.Detail = says + ": it was not checked"
		return check, nil
	}
	if found {
		on := "interfaces that cannot be read"
		if attached > 0 {
			on = count(attached, "interface")
		}
		check.Detail = "policy of an earlier one is enforced on " + on +
			": changes are not followed, and new pods get no network; start margay run, or remove it with margay cleanup"
	} else if check.Detail = iptablesWithout(); check.Detail == "" {
		check.OK, check.Detail = true, "not running"
		return check, nil
	}
	check.Detail = "no agent answers on " + f.socketPath() + ", and " + check.Detail
	return check, nil
}
