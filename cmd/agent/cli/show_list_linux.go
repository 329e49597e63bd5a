package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// showOptions are the flags of show commands; each has those that mean something for it.
type showOptions struct {
	instanceFlags
	output    outputFlag
	watch     bool
	sortBy    string
	namespace string
	pod       string // how its name, or namespace/name, begins
	verdict   string
}

// register adds the flags that all show commands have, and of the others those named.
func (o *showOptions) register(fs *pflag.FlagSet, selections ...string) {
	o.output.register(fs)
	fs.BoolVarP(&o.watch, "watch", "w", false, "keep running, and print again what has changed")
	for _, name := range selections {
		switch name {
		case "namespace":
			fs.StringVarP(&o.namespace, name, "n", "", "only rows of this namespace")
		case "pod":
			fs.StringVar(&o.pod, name, "", "only rows of pods whose `name`, or namespace/name, begins with this")
		case "verdict":
			fs.Var(&choice{&o.verdict, []string{"allow", "deny", "pass", "log"}, "verdict"}, name, "only rules with this action: allow, deny, pass or log")
		case "sort-by":
			fs.StringVar(&o.sortBy, name, "", "column to sort by; a leading - reverses the order")
		}
	}
	grouped(fs, groupSelection, "namespace", "pod", "verdict")
	grouped(fs, groupOutput, "watch", "sort-by")
	o.instanceFlags.register(fs)
}

// selects reports whether the options mean this pod.
func (o *showOptions) selects(namespace, name string) bool {
	if strings.Contains(o.pod, "/") {
		name = namespace + "/" + name
	}
	return (o.namespace == "" || namespace == o.namespace) && strings.HasPrefix(name, o.pod)
}

// selectsName is selects for namespace/name.
func (o *showOptions) selectsName(full string) bool {
	namespace, name, _ := strings.Cut(full, "/")
	return o.selects(namespace, name)
}

// listing is a list of a show command. Each row of the table is one of the list.
type listing[T any] struct {
	read  func(cmd *cobra.Command, args []string) ([]T, error)
	keep  func(*T) bool // by the flags; nil: all
	table func([]T) *table
}

// showList makes a command show a list.
func showList[T any](o *showOptions, cmd *cobra.Command, l listing[T]) *cobra.Command {
	if cmd.Flags().Lookup("sort-by") != nil {
		columns := func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
			t := l.table(nil)
			return beginning(columnNames(append(t.header, t.wide...)), begun), cobra.ShellCompDirectiveNoFileComp
		}
		_ = cmd.RegisterFlagCompletionFunc("sort-by", columns) // fails where it is registered already
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return o.show(cmd, func(w io.Writer) error {
			all, err := l.read(cmd, args)
			if err != nil {
				return err
			}
			rows := []T{}
			for i := range all {
				if l.keep == nil || l.keep(&all[i]) {
					rows = append(rows, all[i])
				}
			}
			t := l.table(rows)
			if left := len(all) - len(rows); left > 0 {
				t.none = fmt.Sprintf("none of %s matches", count(left, "row"))
			}
			if o.sortBy != "" {
				order, err := t.order(o.sortBy)
				if err != nil {
					return err
				}
				rows, t.rows = reorder(rows, order), reorder(t.rows, order)
			}
			return o.output.writeTable(w, rows, t)
		})
	}
	return cmd
}

func reorder[T any](list []T, order []int) []T {
	sorted := make([]T, 0, len(list))
	for _, i := range order {
		sorted = append(sorted, list[i])
	}
	return sorted
}

// show writes once, or with --watch until the user has seen enough.
func (o *showOptions) show(cmd *cobra.Command, write func(io.Writer) error) error {
	if !o.watch {
		return write(cmd.OutOrStdout())
	}
	return watch(cmd.Context(), screenOf(cmd.OutOrStdout()), watchEvery, write)
}

// watchEvery is how often --watch looks.
const watchEvery = time.Second

const clearScreen = "\x1b[H\x1b[2J"

// watch calls write repeatedly, and shows its output whenever it has changed, until ctx ends. On a terminal new output
// replaces the old. A failure of the first call is the error; a later one is shown, and may be over at the next call.
func watch(ctx context.Context, s *screen, every time.Duration, write func(io.Writer) error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for last := ""; ; {
		var text bytes.Buffer
		page := *s
		page.Writer = &text
		if err := write(&page); err != nil {
			if last == "" {
				return err
			}
			text.Reset()
			fmt.Fprintln(&text, "margay:", err)
		}
		if now := text.String(); now != last {
			if s.terminal {
				now = clearScreen + now
			}
			if _, err := io.WriteString(s, now); err != nil {
				return err
			}
			last = text.String()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
