package cli

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/margay-project/margay/pkg/bpfmaps"
)

// linuxCommands are the verbs that need the kernel or a running agent.
func linuxCommands() []*cobra.Command {
	return []*cobra.Command{demoCommand(), runCommand(), configCommand(), showCommand(), verifyCommand(), monitorCommand(), cleanupCommand()}
}

// mapLayout is the version of the pinned state.
func mapLayout() string { return "v" + strconv.Itoa(bpfmaps.Layout) }
