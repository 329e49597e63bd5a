package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/margay-project/margay/pkg/bpfmaps"
	bpfplane "github.com/margay-project/margay/pkg/dataplane/bpf"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/node"
)

// pinnedMaps are the maps that an agent has left, opened to answer in its place.
type pinnedMaps struct {
	*bpfmaps.Maps
	state *bpfplane.PinnedState
}

// openPinned opens the maps that an agent has left. If none are pinned it fails with asked, the error of the agent that was
// asked first.
func (f *instanceFlags) openPinned(asked error) (*pinnedMaps, error) {
	m, err := bpfmaps.OpenPinned(bpfmaps.Options{BPFFS: f.bpffs, Instance: f.instance})
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, asked
	case errors.Is(err, os.ErrPermission):
		return nil, f.mapsForRoot()
	case err != nil:
		return nil, err
	}
	state, err := bpfplane.ReadPinned(m)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return &pinnedMaps{m, state}, nil
}

// mapsAfter is how long an agent may be silent before a tool reads the kernel's maps in its place.
const mapsAfter = 20 * time.Second

// askOrRead is ask for an answer that the maps have, too, if any are pinned.
func (f *instanceFlags) askOrRead(ctx context.Context, path string, parameters url.Values) (*inspect.Answer, error) {
	limit := inspect.Patience
	if _, err := os.Stat(bpfmaps.InstanceDir(f.bpffs, f.instance)); err == nil {
		limit = mapsAfter
	}
	return f.askWithin(ctx, limit, path, parameters)
}

// unanswered says that an agent of this instance runs all the same, as its lock shows, and does not answer: another socket
// was asked, or the file of its socket was removed, or it is silent. Empty: no such process is known. asked is the agent's error.
func (f *instanceFlags) unanswered(asked error) string {
	pid, found, err := bpfmaps.LockHolder(f.bpffs, f.instance)
	silent := errors.Is(asked, inspect.ErrSilent)
	switch {
	case (err != nil || !found) && silent:
		return fmt.Sprintf("the agent on %s is silent: it is busy, or its process is stopped or has no CPU", f.socketPath())
	case err != nil || !found:
		return "" // the other answer is given, as without this one
	case silent && node.Stopped(pid):
		return fmt.Sprintf("the agent (process %d) is silent, since its process is stopped; kill -CONT %d continues it", pid, pid)
	case silent:
		return fmt.Sprintf("the agent (process %d) is silent: it is busy or has no CPU", pid)
	}
	return fmt.Sprintf("the agent (process %d) does not answer on %s, since it starts or has another --socket", pid, f.socketPath())
}

// leftBehind is said on standard error before an answer that does not come from an agent; asked is its error.
func (f *instanceFlags) leftBehind(asked error) string {
	if errors.Is(asked, inspect.ErrNoSnapshot) {
		return "the agent has not read the datastore yet: this is the policy that the last agent left in the kernel's maps; margay show status says what it waits for"
	}
	if says := f.unanswered(asked); says != "" {
		return says + ": this is the policy in the kernel's maps"
	}
	return "no agent runs: this is the policy that the last agent left in the kernel's maps; no change is followed"
}

// orPinned answers from the pinned maps if no agent can answer, and says so once. If no map is pinned it fails as ask
// did.
func orPinned[T any](o *showOptions, ask func(*cobra.Command, []string) ([]T, error),
	read func(m *pinnedMaps, args []string) ([]T, error)) func(*cobra.Command, []string) ([]T, error) {
	said := false
	return func(cmd *cobra.Command, args []string) ([]T, error) {
		list, asked := ask(cmd, args)
		if !notAnswering(asked) {
			return list, asked
		}
		m, err := o.openPinned(asked)
		if err != nil {
			return nil, err
		}
		defer m.Close()
		if list, err = read(m, args); err == nil && !said {
			said = true
			fmt.Fprintln(cmd.ErrOrStderr(), o.leftBehind(asked))
			if n := m.state.Unrecorded(); n > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "map class_sets had no room for the sets of %d addresses: these are missing here, and judged by tables all the same\n", n)
			}
		}
		return list, err
	}
}

// showLeft shows the policy in the maps of an agent that has ended, or does not answer. The exit status is that of a problem.
func (o *showOptions) showLeft(w io.Writer, asked error) error {
	m, err := o.openPinned(asked)
	if err != nil {
		return err
	}
	defer m.Close()
	rows, err := m.endpointRows()
	if err != nil {
		return err
	}
	report := &inspect.StatusReport{NoAgent: true, Agent: inspect.Agent{Dataplane: "bpf"},
		EndpointCounts: inspect.EndpointCounts{Endpoints: len(rows)}, Kinds: []inspect.KindRow{}}
	for i := range rows {
		if endpointProblem(&rows[i]) == "" {
			report.Enforced++
		}
	}
	err = o.output.write(w, report, func(w io.Writer) error {
		state := "not running: " + enforcedText(report) + ", as the last agent left it; no change is followed"
		todo := "start margay run; it goes on from here. Or remove what is enforced with margay cleanup"
		if says := o.unanswered(asked); says != "" {
			state = says + ": " + enforcedText(report)
			todo = "ask again, or say which socket it has with --socket; it makes a socket again whose file was removed"
		}
		if errors.Is(asked, inspect.ErrSilent) {
			todo = "ask again, and look at its log and at the state of its process"
		}
		t := table{header: []string{"agent", state}}
		t.add("dataplane", report.Dataplane)
		t.add("maps", m.Dir())
		t.add("endpoints", fmt.Sprintf("%d, %d of them enforced", report.Endpoints, report.Enforced))
		t.add("to do", todo)
		return t.write(w)
	})
	if err == nil && !o.watch {
		return exitCode(1)
	}
	return err
}

// endpointRows are the endpoints that are enforced.
func (m *pinnedMaps) endpointRows() ([]inspect.EndpointRow, error) {
	own := node.OwnNumbers(m.LinkDir())
	return m.state.EndpointRows(func(ifindex uint32) string {
		if !own {
			return ""
		}
		return node.InterfaceNamed(int(ifindex))
	})
}

// pinnedEndpoints are the endpoints that are enforced, agent or not.
func pinnedEndpoints(m *bpfmaps.Maps) ([]inspect.EndpointRow, error) {
	state, err := bpfplane.ReadPinned(m)
	if err != nil {
		return nil, err
	}
	return (&pinnedMaps{m, state}).endpointRows()
}

// endpointRows are the endpoints as the agent has them, or, if it cannot be asked, as the maps do; none if they cannot be
// read either: what else is in the maps is true all the same.
func (f *instanceFlags) endpointRows(ctx context.Context, m *bpfmaps.Maps) []inspect.EndpointRow {
	// Names are worth no longer wait.
	if answer, err := f.askWithin(ctx, silence, "/v1/endpoints", nil); err == nil {
		return answer.Endpoints
	}
	if m == nil { // there are none
		return nil
	}
	rows, _ := pinnedEndpoints(m)
	return rows
}
