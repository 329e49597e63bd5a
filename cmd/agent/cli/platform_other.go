//go:build !linux

package cli

import "github.com/spf13/cobra"

// linuxCommands are the verbs that need the kernel or a running agent: there are none here.
func linuxCommands() []*cobra.Command { return nil }

// mapLayout is the version of what is pinned: nothing is here.
func mapLayout() string { return "none" }
