package bpfmaps

import (
	"path/filepath"
	"strings"
)

// LinksOfOthers is LinksBeside the instance whose links are in linkDir.
func LinksOfOthers(linkDir string) (map[string][]string, error) {
	return LinksBeside(filepath.Dir(filepath.Dir(linkDir)))
}

// LinksBeside returns the directories of links of the other instances below the same BPF file system, of all map layouts, by the name of the
// instance. own is the InstanceDir of this one. The directories may be empty.
func LinksBeside(own string) (map[string][]string, error) {
	unnamed := InstanceDir(filepath.Dir(own), "")
	dirs, err := filepath.Glob(unnamed + "*")
	if err != nil {
		return nil, err
	}
	others := map[string][]string{}
	for _, dir := range dirs {
		name, dash := strings.CutPrefix(strings.TrimPrefix(dir, unnamed), "-")
		if dir == own || dir != unnamed && !dash {
			continue
		}
		links, err := filepath.Glob(filepath.Join(dir, "v*", LinksName))
		if err != nil {
			return nil, err
		}
		if len(links) > 0 {
			others[name] = links
		}
	}
	return others, nil
}
