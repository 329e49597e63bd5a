package cli

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/node"
)

// linuxCommands are the verbs that need the kernel or a running agent.
func linuxCommands() []*cobra.Command {
	return []*cobra.Command{demoCommand(), runCommand(), configCommand(), showCommand(), verifyCommand(), monitorCommand(), cleanupCommand()}
}

// iptablesWithout says how policy that is enforced with iptables here stands, given that no agent answers; empty: there is none, or, as to a
// user who is not root, it is not known.
func iptablesWithout() string {
	enforced, running, err := node.IPTablesPolicy()
	switch {
	case err != nil:
		return ""
	case running:
		return "an agent that enforces with iptables runs in this network namespace and does not answer there: say which one with --instance or --socket"
	case enforced:
		return "policy that an earlier one left is enforced with iptables, which only an agent can show: changes are not followed, and new pods " +
			"get no network; start margay run, or remove it with margay cleanup --instance \"\""
	}
	return ""
}

// uplinks are the interfaces by which default routes of this network namespace lead. If they cannot be read, nothing is refused for them.
func uplinks() []string {
	names, err := attach.Uplinks(attach.WatchOptions{})
	if err != nil {
		return nil
	}
	return names
}

// loopbacks are the loopback interfaces of this network namespace. If they cannot be read, nothing is refused for them.
func loopbacks() []string {
	names, err := attach.Loopbacks(attach.WatchOptions{})
	if err != nil {
		return nil
	}
	return names
}

// mapLayout is the version of the pinned state.
func mapLayout() string { return "v" + strconv.Itoa(bpfmaps.Layout) }
