package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/margay-project/margay/pkg/diff"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// diffOptions are the flags of diff.
type diffOptions struct {
	settings settingFlags
	output   outputFlag
	dir, to  string
	deleted  []string
	limit    int
}

func diffCommand() *cobra.Command {
	var o diffOptions
	cmd := &cobra.Command{
		Use:   "diff [FILE…]",
		Short: "Say which verdicts a change of objects would change, before it is made",
		Long: `Compares policy before and after a change: which connections of which pods would be denied or allowed that are not
now, and which rule decides before and after. For every pod and direction it judges one packet for each kind of remote
address and each kind of port that either state distinguishes, so that "no verdict changes" is a proof.

Objects before the change are those of a directory of manifests (--dir), or of a cluster (--datastore kubernetes or
etcd). After the change, the objects in FILE are added to them or replace those of the same name, and those in the
files of --delete are gone; or all objects are those of the directory --to. FILE is a file, a directory, or - for
standard input. Nothing is written, and no agent is needed.

Exit status: 0 no verdict changes, 1 some do, 2 error, or a part could not be compared.`,
		Example: `  margay diff --dir manifests policy.yaml
  margay diff --dir manifests --delete old-policy.yaml
  margay diff --dir main/manifests --to branch/manifests
  kubectl exec -i -n kube-system ds/margay -- margay diff --datastore kubernetes - < policy.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			return o.check(cmd.Flags().Changed("datastore"), args)
		},
		RunE:       func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
		SuggestFor: []string{"preview", "plan", "compare", "simulate"},
	}
	flags := cmd.Flags()
	flags.Var(manifestsFlag{&o.dir}, "dir", "directory of manifests with the objects before the change")
	flags.Var(manifestsFlag{&o.to}, "to", "directory of manifests with all objects after the change")
	flags.StringArrayVar(&o.deleted, "delete", nil, "file with objects that are gone after the change (repeatable)")
	flags.IntVar(&o.limit, "limit", 100, "print so many changes at most; 0: all")
	o.settings.register(flags, datastoreSettings...)
	o.output.register(flags)
	return cmd
}

// check checks which flags are given together.
func (o *diffOptions) check(datastore bool, files []string) error {
	given := len(files) > 0
	switch {
	case datastore == (o.dir != ""):
		return errors.New("diff: want one of --dir and --datastore, for the objects before the change")
	case o.to != "" && (given || len(o.deleted) > 0):
		return errors.New("diff: want FILE and --delete, or --to, for the objects after the change")
	case o.to == "" && !given && len(o.deleted) == 0:
		return errors.New("diff: want FILE, --delete or --to, for the objects after the change")
	case slices.Contains(o.deleted, ""):
		return errors.New("diff: --delete: want a file; is a variable unset?")
	case slices.Contains(o.deleted, "-") && slices.Contains(files, "-"):
		return errors.New("diff: standard input (-) can be read once, and both FILE and --delete name it: write one of them to a file")
	case o.limit < 0:
		return fmt.Errorf("diff: --limit %d: want 0 or more", o.limit)
	}
	return nil
}

func (o *diffOptions) run(cmd *cobra.Command, files []string) error {
	before, err := o.before(cmd.Context(), cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	after, err := o.after(cmd, before, files)
	if err != nil {
		return err
	}
	report, err := diff.Compare(before.updates, after)
	if err != nil {
		return fmt.Errorf("diff: %w", err)
	}
	report.Limit(o.limit)
	err = o.output.write(cmd.OutOrStdout(), report, func(w io.Writer) error { return writeDiff(w, report, o.output == "wide") })
	switch {
	case err != nil:
		return err
	case len(report.Changes) > 0:
		return exitCode(1)
	case !report.Same:
		return exitCode(2)
	}
	return nil
}

// before reads the objects before the change.
func (o *diffOptions) before(ctx context.Context, stderr io.Writer) (*manifests, error) {
	if o.dir != "" {
		m, err := loadDirectory(ctx, o.dir)
		if err == nil && len(m.problems) > 0 {
			fmt.Fprintf(stderr, "margay: the manifests before the change have %s; see: margay check --dir %s\n", count(len(m.problems), "problem"), o.dir)
		}
		return m, err
	}
	layers, warnings, err := o.settings.layers()
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		fmt.Fprintln(stderr, "margay: warning:", w)
	}
	source, err := datastoreSource(layers.Config())
	if err != nil {
		return nil, err
	}
	m, _, err := readDatastore(ctx, source)
	if err != nil {
		return nil, fmt.Errorf("diff: datastore %s: %w", layers.Config().Datastore, err)
	}
	return m, nil
}

// after returns the objects after the change.
func (o *diffOptions) after(cmd *cobra.Command, before *manifests, files []string) ([]model.Update, error) {
	if o.to != "" {
		m, err := loadDirectory(cmd.Context(), o.to)
		if err != nil {
			return nil, err
		}
		return m.updates, usable(m, cmd.ErrOrStderr())
	}
	after := slices.Clone(before.updates)
	if len(o.deleted) > 0 {
		m, err := loadFiles(cmd.InOrStdin(), o.deleted)
		if err != nil {
			return nil, err
		}
		if err := usable(m, cmd.ErrOrStderr()); err != nil {
			return nil, err
		}
		if err := known(m, before.updates); err != nil {
			return nil, err
		}
		for _, u := range m.updates {
			after = append(after, model.Absent(u))
		}
	}
	if len(files) > 0 {
		m, err := loadFiles(cmd.InOrStdin(), files)
		if err != nil {
			return nil, err
		}
		if err := usable(m, cmd.ErrOrStderr()); err != nil {
			return nil, err
		}
		after = append(after, m.updates...)
		noteVanished(cmd.ErrOrStderr(), before.updates, m.updates)
	}
	return after, nil
}

// usable returns an error if the objects after the change are not those that were written: a rejected one would not take effect.
func usable(m *manifests, stderr io.Writer) error {
	if m.isEmpty() {
		return errors.New("diff: the files of the change have no objects")
	}
	for _, p := range m.problems {
		if p.Severity == validate.Rejected {
			return fmt.Errorf("diff: an object of the change would not take effect: %s", p)
		}
		fmt.Fprintln(stderr, "margay:", p)
	}
	return nil
}

// known returns an error if an object that is to be deleted is not there before: nothing would change, whatever was meant.
func known(deleted *manifests, before []model.Update) error {
	there := map[model.Key]bool{}
	for _, u := range before {
		key, present := model.KeyOf(u)
		there[key] = present
	}
	for _, u := range deleted.updates {
		if u == (model.InSync{}) { // the end of what the files have; a datastore's objects are without it
			continue
		}
		if key, _ := model.KeyOf(u); !there[key] {
			return fmt.Errorf("diff: --delete: %s: this object is not among those before the change; is its name or namespace right?", deleted.places[key])
		}
	}
	return nil
}

// noteVanished names pods that are written without the address that they have: so they are gone.
func noteVanished(stderr io.Writer, before, change []model.Update) {
	there := map[model.EndpointID]bool{}
	for _, u := range before {
		if pod, ok := u.(model.EndpointUpdate); ok {
			there[pod.ID] = pod.Endpoint != nil && !pod.Endpoint.HostNetwork
		}
	}
	for _, u := range change {
		if pod, ok := u.(model.EndpointUpdate); ok && pod.Endpoint == nil && there[pod.ID] {
			fmt.Fprintf(stderr, "margay: pod %s has no node or no address in the change, and counts as gone; write it with its status, as kubectl get -o yaml prints it\n", pod.ID)
		}
	}
}
