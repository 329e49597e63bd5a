//go:build !linux

package cli

import (
	"github.com/spf13/cobra"

	"github.com/margay-project/margay/pkg/explain"
)

// linuxCommands are the verbs that need the kernel or a running agent: there are none here.
func linuxCommands() []*cobra.Command { return nil }

// iptablesWithout has nothing to say: nothing enforces on this platform.
func iptablesWithout() string { return "" }

// uplinks and loopbacks are not looked for: no interface is closed on this platform.
func uplinks() []string   { return nil }
func loopbacks() []string { return nil }

// mapLayout is the version of the pinned state: there is none on this platform.
func mapLayout() string { return "none" }

// pinned has no kernel to read.
func (o *explainOptions) pinned(_ *cobra.Command, _ explain.Request, asked error) (*explain.Explanation, error) {
	return nil, asked
}
