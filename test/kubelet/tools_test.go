package kubelet

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// library matches what ldd prints of one.
var library = regexp.MustCompile(`(/[^ ]+) \(0x`)

// copyTools makes a root file system of commands of this machine and their libraries: a stand-in for the Dockerfile's image with iptables,
// whose base comes from a registry.
func copyTools(root string, commands ...string) error {
	files := map[string]bool{}
	for _, command := range commands {
		for _, variant := range []string{command, command + "-legacy", command + "-nft", command + "-restore", command + "-save"} {
			if path, err := exec.LookPath(variant); err == nil {
				files[path] = true
			}
		}
	}
	for path := range files {
		if err := copyTool(root, path); err != nil {
			return fmt.Errorf("copy %s: %w", path, err)
		}
	}
	extensions, err := filepath.Glob("/usr/lib/*/xtables")
	if err == nil && len(extensions) == 1 {
		err = os.CopyFS(filepath.Join(root, extensions[0]), os.DirFS(extensions[0]))
	}
	if err != nil || len(extensions) != 1 {
		return fmt.Errorf("copy the extensions of iptables, found in %v: %w", extensions, err)
	}
	return nil
}

// copyTool copies a command as its name says, and its libraries.
func copyTool(root, path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	out, err := exec.Command("ldd", real).Output()
	if err != nil {
		return fmt.Errorf("list its libraries: %w", err)
	}
	if err := copyFile(real, filepath.Join(root, path)); err != nil {
		return err
	}
	for _, l := range library.FindAllStringSubmatch(string(out), -1) {
		if err := copyFile(l[1], filepath.Join(root, l[1])); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o755)
}
