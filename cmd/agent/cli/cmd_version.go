package cli

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// Values that the linker sets with -X: the Makefile and the image do, `go install` and a plain `go build` do not.
var (
	stampedVersion string // as of git describe
	stampedCommit  string // with "-dirty" behind it if the tree had changes
)

// build says what this program was made of. Its fields are the JSON of margay version.
type build struct {
	Version   string `json:"version"`  // a release's, or of a development build what git describe says or "devel"
	Commit    string `json:"commit"`   // "unknown" if neither the linker nor Go knows it
	Modified  bool   `json:"modified"` // the tree had changes that no commit has, as far as that is known
	Go        string `json:"goVersion"`
	Platform  string `json:"platform"`
	MapLayout string `json:"mapLayout"`
}

func versionCommand() *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print version, commit, Go version and map layout",
		Args:  noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := thisBuild()
			return output.write(cmd.OutOrStdout(), b, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, b)
				return err
			})
		},
	}
	output.register(cmd.Flags())
	return cmd
}

// String is the one line of --version.
func (b build) String() string {
	commit := b.Commit[:min(12, len(b.Commit))]
	if b.Modified {
		commit += ", modified"
	}
	return fmt.Sprintf("margay %s (commit %s, map layout %s, %s %s)", b.Version, commit, b.MapLayout, b.Go, b.Platform)
}

// version is the version of the agent, as it reports it.
func version() string {
	return thisBuild().Version
}

func thisBuild() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return buildOf(info, stampedVersion, stampedCommit)
}

// buildOf prefers the values that the linker was given to those that Go noted.
func buildOf(info *debug.BuildInfo, version, commit string) build {
	b := build{Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, MapLayout: mapLayout()}
	noted := ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			noted = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	main := info.Main.Version
	if main == "(devel)" {
		main = ""
	}
	commit, dirty := strings.CutSuffix(commit, "-dirty")
	b.Commit = cmp.Or(commit, noted, pseudoCommit(main), "unknown")
	b.Version = cmp.Or(version, main, "devel")
	b.Modified = b.Modified || dirty || strings.HasSuffix(version, "-dirty")
	return b
}

// pseudoCommit is the commit in a version that Go makes up for a module without a tag, as in
// v0.0.0-20261122044751-3ae8d9012345; empty: it has another form.
func pseudoCommit(version string) string {
	version, _, _ = strings.Cut(version, "+")
	parts := strings.Split(version, "-")
	if len(parts) < 3 {
		return ""
	}
	commit, before := parts[len(parts)-1], parts[len(parts)-2]
	if len(commit) != 12 || len(before) < 14 || strings.Trim(commit, "0123456789abcdef") != "" {
		return ""
	}
	return commit
}
