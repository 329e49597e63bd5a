package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/margay-project/margay/pkg/inspect"
)

// verifyOptions are the flags of verify.
type verifyOptions struct {
	instanceFlags
	output   outputFlag
	endpoint string
}

func verifyCommand() *cobra.Command {
	var o verifyOptions
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Prove that the kernel judges every packet as the objects demand",
		Long: `Has the running agent read back what the kernel holds, and compare it with an evaluation of the objects that shares
nothing with the compiler: for every local pod and direction, one packet for each kind of remote address and each kind
of port that either side distinguishes. That takes half of a CPU at most, at the lowest priority, and changes nothing.
The exit status is 0 if everything is proven, 1 if something differs, and 2 if something could not be verified.`,
		Args: noArguments("endpoint"),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.endpoint, "endpoint", "", "only this local pod, NAMESPACE/POD")
	grouped(fs, groupSelection, "endpoint")
	o.output.register(fs)
	o.instanceFlags.register(fs)
	_ = cmd.RegisterFlagCompletionFunc("endpoint", completePods(1)) // fails for a flag that is not there only
	return cmd
}

func (o *verifyOptions) run(cmd *cobra.Command) error {
	if _, err := o.ask(cmd.Context(), "/v1/status", nil); err != nil { // before one that takes its time, whether there is an agent that answers
		return err
	}
	report, err := inspect.Client{Socket: o.socketPath()}.Verify(cmd.Context(), o.endpoint)
	if err := o.explain(err); err != nil {
		return err
	}
	if report == nil {
		return fmt.Errorf("verify: the agent on %s sent no report: is it of this version (margay show status, margay version)?", o.socketPath())
	}
	most := fewDifferences
	if o.output == "wide" {
		most = len(report.Differences)
	}
	if err := o.output.write(cmd.OutOrStdout(), report, func(w io.Writer) error { return writeVerification(w, report, most) }); err != nil {
		return err
	}
	switch {
	case len(report.Differences) > 0:
		return exitCode(1)
	case !report.Proven:
		return exitCode(2)
	}
	return nil
}

// fewDifferences bounds the wrong verdicts printed for one direction and evaluator, unless -o wide asks for all.
const fewDifferences = 3

func writeVerification(w io.Writer, r *inspect.Verification, most int) error {
	type place struct{ namespace, name, direction, evaluator string }
	var order []place
	seen := map[place]int{}
	for _, d := range r.Differences {
		at := place{d.Namespace, d.Name, d.Direction, d.Evaluator}
		if d.Packet != "" {
			if seen[at]++; seen[at] == 1 {
				order = append(order, at)
			}
			if seen[at] > most {
				continue
			}
		}
		if _, err := fmt.Fprintln(w, "differs:", d.Text); err != nil {
			return err
		}
	}
	for _, at := range order {
		if more := seen[at] - most; more > 0 {
			if _, err := fmt.Fprintf(w, "differs: %s/%s %s: the %s judges %s more otherwise; -o wide prints all\n",
				at.namespace, at.name, at.direction, at.evaluator, count(more, "packet")); err != nil {
				return err
			}
		}
	}
	for _, n := range r.NotProven {
		what := n.Part
		if what == "" {
			what = n.Namespace + "/" + n.Name
		}
		if _, err := fmt.Fprintf(w, "not proven: %s: %s\n", what, n.Reason); err != nil {
			return err
		}
	}
	result := "proven"
	if len(r.Differences) > 0 {
		result = count(len(r.Differences), "difference")
	} else if !r.Proven {
		result = "not proven"
	}
	took := func(seconds float64) string { return brief(time.Duration(seconds * float64(time.Second))).String() }
	_, err := fmt.Fprintf(w, "%s: %s verified with %s in %s, %s of CPU\n", result, count(r.Endpoints, "endpoint"), count(r.Questions, "packet"),
		took(r.Took.Seconds), took(r.Took.CPUSeconds))
	return err
}
