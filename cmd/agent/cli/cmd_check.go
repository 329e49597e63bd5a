package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/inspect/rows"
	"github.com/margay-project/margay/pkg/lint"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/node"
	"github.com/margay-project/margay/pkg/validate"
)

// checkOptions are the flags of check.
type checkOptions struct {
	settings settingFlags
	output   outputFlag
	dir      string
}

// nodeSettings are those that a check of this node depends on, besides those of the datastore.
var nodeSettings = []string{"instance", "bpffs", "socket", "dataplane", "mark-mask", "iptables-mark-mask", "iptables-backend"}

// checkReport is the answer of check.
type checkReport struct {
	OK       bool                 `json:"ok"`
	Node     *node.Report         `json:"node,omitempty"`
	Notes    []string             `json:"notes,omitempty"`
	Problems []inspect.ProblemRow `json:"problems"`
}

func checkCommand() *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check [FILE…]",
		Short: "Find problems of this node and the objects its agent reads, or of manifests",
		Long: `Checks this node: whether its kernel can run Margay, which dataplane is chosen and why, what is in its way, and what
is wrong with the objects that the running agent reads. Settings are those that margay run would have with these flags,
this environment and this file. Needs root.

With --datastore: what is wrong with the objects of an API server or of etcd, which are read as an agent would read
them. With FILE or --dir: what is wrong with manifests: objects that are rejected, rules that are left out, policy that
nodes refuse, and policy that most likely means something else than its author thought. FILE is a file, a directory,
or - for standard input. Needs neither root nor Linux.

Exit status: 0 all is well, 1 something is not, 2 it could not be checked.`,
		Example: `  margay check
  margay check shop.yaml policies/
  margay check --datastore etcd --etcd-endpoints https://10.0.0.1:2379 --etcd-ca-file ca.crt
  kubectl get netpol,po,ns -A -o yaml | margay check -`,
		Args: func(cmd *cobra.Command, args []string) error {
			ways := 0
			for _, way := range []bool{len(args) > 0, o.dir != "", cmd.Flags().Changed("datastore")} {
				if way {
					ways++
				}
			}
			if ways > 1 {
				return errors.New("check: want one of FILE, --dir and --datastore")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	flags := cmd.Flags()
	flags.Var(manifestsFlag{&o.dir}, "dir", "check the manifests in this directory instead of this node")
	o.settings.register(flags, slices.Concat(datastoreSettings, nodeSettings)...)
	o.output.register(flags)
	return cmd
}

func (o *checkOptions) run(cmd *cobra.Command, files []string) error {
	report := &checkReport{OK: true, Problems: []inspect.ProblemRow{}}
	var err error
	switch {
	case len(files) > 0:
		err = report.manifests(loadFiles(cmd.InOrStdin(), files))
	case o.dir != "":
		err = report.manifests(loadDirectory(cmd.Context(), o.dir))
	case cmd.Flags().Changed("datastore"):
		err = o.datastore(cmd.Context(), cmd.ErrOrStderr(), report)
	default:
		err = o.node(cmd, report)
	}
	if err != nil {
		return err
	}
	report.OK = report.OK && len(report.Problems) == 0
	err = o.output.write(cmd.OutOrStdout(), report, func(w io.Writer) error { return writeCheck(w, report) })
	if err == nil && !report.OK {
		return exitCode(1)
	}
	return err
}

// manifests checks manifests that have been read, unless there was an error. No objects at all are an error: the files are others than meant.
func (report *checkReport) manifests(m *manifests, err error) error {
	if err != nil {
		return err
	}
	note := m.ignoredNote()
	if m.isEmpty() {
		return fmt.Errorf("check: no objects to look at%s", strings.TrimSuffix("; "+note, "; "))
	}
	if note != "" {
		report.Notes = append(report.Notes, note)
	}
	return report.objects(m)
}

// objects checks objects that have been read. A datastore may have none.
func (report *checkReport) objects(m *manifests) error {
	for _, p := range m.problems {
		report.Problems = append(report.Problems, rows.Problem(p))
	}
	for _, p := range lint.Fit(m.updates) {
		row := rows.GraphProblem(p)
		if p.Endpoint != (model.EndpointID{}) {
			row.Object = m.placed("Pod "+p.Endpoint.String(), model.EndpointUpdate{ID: p.Endpoint})
		} else if p.Policy != (model.PolicyKey{}) {
			row.Object = m.placed(row.Object, model.PolicyUpdate{Key: p.Policy})
		}
		report.Problems = append(report.Problems, row)
	}
	if !lint.HasEndpoints(m.updates) {
		report.Notes = append(report.Notes, "no pods among the manifests: it was not checked which pods the policies select")
	}
	for _, f := range lint.Check(m.updates) {
		row := rows.Finding(f)
		if f.Endpoint != (model.EndpointID{}) {
			row.Object = m.placed(row.Object, model.EndpointUpdate{ID: f.Endpoint})
		} else {
			row.Object = m.placed(row.Object, model.PolicyUpdate{Key: f.Policy})
		}
		report.Problems = append(report.Problems, row)
	}
	return nil
}

// placed is an object's name after the place where it is written, as far as that is known. The update is of the object,
// and need not say anything of it.
func (m *manifests) placed(object string, u model.Update) string {
	key, _ := model.KeyOf(u)
	if ref, ok := m.places[key]; ok {
		return validate.Ref{File: ref.File, Line: ref.Line}.String() + ": " + object
	}
	return object
}

func writeCheck(w io.Writer, r *checkReport) error {
	if r.Node != nil {
		if err := writeNode(w, r.Node); err != nil {
			return err
		}
	}
	for _, note := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", note)
	}
	for _, p := range r.Problems {
		fmt.Fprintln(w, problemText(screenOf(w), p))
	}
	verdict := "check: " + screenOf(w).paint("all is well")
	if !r.OK {
		failed := 0
		if r.Node != nil {
			failed = r.Node.Problems()
		}
		verdict = "check: " + screenOf(w).alarm(count(failed+len(r.Problems), "problem"))
	}
	_, err := fmt.Fprintln(w, verdict)
	return err
}

func writeNode(w io.Writer, n *node.Report) error {
	fmt.Fprintf(w, "kernel     %s\n", n.Kernel)
	dataplane := n.Dataplane
	if dataplane == "" {
		dataplane = "none"
	}
	fmt.Fprintf(w, "dataplane  %s: %s\n\n", dataplane, n.Reason)
	t := table{header: []string{"CHECK", "FOR", "RESULT", "DETAIL"}}
	for _, c := range n.Checks {
		result := "ok"
		switch {
		case n.Counts(c):
			result = "PROBLEM"
		case !c.OK:
			result = "missing"
		}
		t.add(c.Name, c.Dataplane, result, c.Detail)
	}
	if err := t.write(w); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

// problemText is one line.
func problemText(s *screen, p inspect.ProblemRow) string {
	text := s.paint(p.Severity) + ": "
	if p.Field != "" {
		text += p.Field + ": "
	}
	text += readable(p.Reason)
	if p.Object == "" {
		return text
	}
	return p.Object + ": " + text
}
