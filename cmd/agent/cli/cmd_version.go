package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print version, commit and map layout",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintf(cmd.OutOrStdout(), "margay %s (map layout %s, %s %s/%s)\n",
				version(), mapLayout(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
		},
	}
}

// version is the module version, or the commit a development build was made from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && (v == "" || v == "(devel)") {
			v = "devel-" + s.Value[:min(12, len(s.Value))]
		}
	}
	return v
}
