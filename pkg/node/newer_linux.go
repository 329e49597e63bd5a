package node

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/margay-project/margay/pkg/agent"
	"github.com/margay-project/margay/pkg/attach"
)

// newer looks for programs in linkDir that an agent of another version has left. They go on to judge packets, by what that agent
// wrote last.
func newer(linkDir string) agent.Look {
	return agent.Look{What: "programs of another version", Every: time.Minute, Find: func() ([]string, error) {
		unknown, err := attach.UnknownPins(linkDir)
		if err != nil || len(unknown) == 0 {
			return nil, err
		}
		return []string{fmt.Sprintf("programs of another version of Margay are attached, which this one does not know (%s): they may drop what policy allows; "+
			"stop the agent, run margay cleanup and start it again, or detach them by removing their files", strings.Join(paths(linkDir, unknown), ", "))}, nil
	}}
}

// paths are the paths of some names in a directory, and how many more there are.
func paths(dir string, names []string) (all []string) {
	const most = 5
	for _, name := range names[:min(len(names), most)] {
		all = append(all, filepath.Join(dir, name))
	}
	if more := len(names) - most; more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return all
}
