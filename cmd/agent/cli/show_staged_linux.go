package cli

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/margay-project/margay/pkg/inspect"
)

func showStagedCommand() *cobra.Command {
	var o showOptions
	cmd := &cobra.Command{
		Use: "staged", Short: "What staged policies would have decided otherwise, with examples",
		Long: `List the staged policies that apply to pods of this node, for each direction the new flows that they would have denied
or allowed if all staged policies were enforced, and the last ten examples of each. Counts are exact; examples come
from events, which are rate limited.`,
		Args: noArguments(""),
	}
	o.register(cmd.Flags(), "namespace")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return o.show(cmd, func(w io.Writer) error {
			answer, err := o.ask(cmd.Context(), "/v1/staged", nil)
			if err != nil {
				return err
			}
			list := []inspect.StagedRow{}
			for _, row := range answer.Staged {
				if o.namespace == "" || row.Namespace == o.namespace {
					list = append(list, row)
				}
			}
			if err := o.output.writeTable(w, list, stagedTable(list)); err != nil || o.output == "json" || o.output == "yaml" {
				return err
			}
			return writeExamples(w, list)
		})
	}
	return cmd
}

func stagedTable(rows []inspect.StagedRow) *table {
	t := &table{
		header: []string{"TIER", "POLICY", "DIRECTION", "PODS", "WOULD DENY", "WOULD ALLOW", "NOTE"},
		none:   "no staged policy applies to a pod of this node",
	}
	for i := range rows {
		r := &rows[i]
		note := ""
		if r.NotEvaluated != "" {
			note = "not evaluated: " + r.NotEvaluated
		}
		t.add(r.Tier, objectText(r.Kind, r.Namespace, r.Name), r.Direction, number(uint64(r.Endpoints)),
			strconv.FormatUint(r.WouldDeny, 10), strconv.FormatUint(r.WouldAllow, 10), note)
	}
	return t
}

// writeExamples writes the latest flows of each policy that it would have decided otherwise.
func writeExamples(w io.Writer, rows []inspect.StagedRow) error {
	t := &table{header: []string{"TIME", "POD", "DIRECTION", "SOURCE", "DESTINATION", "PROTOCOL", "WOULD BE", "BY"}}
	for i := range rows {
		for _, r := range rows[i].Examples {
			src, dst := r.Src.String(), r.Dst.String()
			if r.Src.Port() == 0 && r.Dst.Port() == 0 {
				src, dst = r.Src.Addr().String(), r.Dst.Addr().String()
			}
			verdict := map[string]string{"allow": "allowed", "deny": "denied"}[r.Staged.Verdict]
			t.add(r.Time.Local().Format(time.RFC3339), r.Endpoint, r.Direction, src, dst, r.Protocol, verdict, r.Staged.Rule)
		}
	}
	if len(t.rows) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return t.write(w)
}
