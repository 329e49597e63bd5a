package cli

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/node"
)

// cleanupOptions are the flags of cleanup.
type cleanupOptions struct {
	instanceFlags
	output outputFlag
}

func cleanupCommand() *cobra.Command {
	var o cleanupOptions
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove what an agent that has stopped has left: programs, maps, chains, socket",
		Long: `Removes what a stopped agent of this instance has left: BPF programs, maps and socket. Without an instance it also
removes the chains, IP sets and connection marks of the iptables dataplane, which belong to this network
namespace and to no instance; with --instance it leaves them and says so, and --instance ""
removes them where MARGAY_INSTANCE is set.
Then packets pass as if Margay had never run. Refuses while an agent runs. It may be repeated: a part that is gone is
skipped. Needs root.`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := o.run(cmd)
			if err != nil {
				err = fmt.Errorf("cleanup: %w", err)
			}
			if err != nil && len(list) == 0 {
				return err
			}
			t := &table{header: []string{"REMOVED", "WHAT"}, none: "nothing to remove"}
			for _, r := range list {
				t.add(r.Kind, r.What)
			}
			return errors.Join(err, o.output.writeTable(cmd.OutOrStdout(), orEmpty(list), t), o.noteOthers(cmd.ErrOrStderr()))
		},
	}
	o.output.register(cmd.Flags())
	o.instanceFlags.register(cmd.Flags())
	return cmd
}

// run removes everything unless an agent runs. The parts are also those of margay run, so their errors do not name the command.
func (o *cleanupOptions) run(cmd *cobra.Command) ([]node.Removed, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("detaching programs from interfaces needs root")
	}
	if _, err := o.ask(cmd.Context(), "/v1/status", nil); err == nil {
		return nil, fmt.Errorf("an agent answers on %s: it is running; stop it first", o.socketPath())
	}
	return node.Cleanup(cmd.Context(), o.config())
}

// noteOthers names what may still enforce: the instances that this one is not, and chains, which belong to no instance and which the
// cleanup of one leaves alone.
func (o *cleanupOptions) noteOthers(w io.Writer) error {
	others, err := node.OtherInstances(o.config())
	if err != nil {
		return fmt.Errorf("cleanup: look for other instances: %w", err)
	}
	for _, name := range others {
		_, running, err := bpfmaps.LockHolder(o.config().BPFFS, name)
		if err != nil {
			return fmt.Errorf("cleanup: look for an agent of instance %q: %w", name, err)
		}
		if running {
			fmt.Fprintf(w, "another instance has an agent that runs (%q), and its policy stays in force\n", name)
			continue
		}
		fmt.Fprintf(w, "another instance is left: margay cleanup --instance %q\n", name)
	}
	if o.instance == "" {
		return nil
	}
	enforced, running, err := node.IPTablesPolicy()
	if err != nil {
		return fmt.Errorf("cleanup: look for chains of iptables: %w", err)
	}
	if enforced && !running {
		fmt.Fprintf(w, "policy is still enforced with iptables in this network namespace, by chains that belong to no instance: margay cleanup --instance %q\n", "")
	}
	return nil
}
