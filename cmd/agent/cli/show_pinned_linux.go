package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/margay-project/margay/pkg/bpfmaps"
	bpfplane "github.com/margay-project/margay/pkg/dataplane/bpf"
	"github.com/margay-project/margay/pkg/inspect"
)

// orPinned answers from the pinned maps if no agent runs to ask, and says so once. Where nothing is pinned it fails as ask
// did.
func orPinned[T any](o *showOptions, ask func(*cobra.Command, []string) ([]T, error),
	read func(m *bpfmaps.Maps, args []string) ([]T, error)) func(*cobra.Command, []string) ([]T, error) {
	said := false
	return func(cmd *cobra.Command, args []string) ([]T, error) {
		list, asked := ask(cmd, args)
		if !errors.Is(asked, inspect.ErrNotRunning) {
			return list, asked
		}
		m, err := bpfmaps.OpenPinned(bpfmaps.Options{BPFFS: o.bpffs, Instance: o.instance})
		if errors.Is(err, os.ErrNotExist) {
			return nil, asked
		}
		if err != nil {
			return nil, err
		}
		defer m.Close()
		if list, err = read(m, args); err == nil && !said {
			said = true
			fmt.Fprintln(cmd.ErrOrStderr(), "no agent runs: this is what the last one left enforced, from the kernel's maps; no change is followed")
		}
		return list, err
	}
}

// pinnedEndpoints are the endpoints that are enforced, agent or not.
func pinnedEndpoints(m *bpfmaps.Maps) ([]inspect.EndpointRow, error) {
	own := ownNumbers(m.LinkDir())
	return bpfplane.PinnedEndpoints(m, func(ifindex uint32) string {
		if !own {
			return ""
		}
		return interfaceNamed(int(ifindex))
	})
}

// endpointRows are the endpoints as the agent has them, or, if it cannot be asked, as the maps do; none if they cannot be
// read either: what else is in the maps is true all the same.
func (f *instanceFlags) endpointRows(ctx context.Context, m *bpfmaps.Maps) []inspect.EndpointRow {
	if answer, err := f.ask(ctx, "/v1/endpoints", nil); err == nil {
		return answer.Endpoints
	}
	rows, _ := pinnedEndpoints(m)
	return rows
}
