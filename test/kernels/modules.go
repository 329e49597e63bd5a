package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// modules are the parts of a kernel's modules that guests have, by the beginning of their path.
var modules = []string{"kernel/net/", "kernel/lib/", "kernel/crypto/", "kernel/arch/"}

// drivers are those of devices that are software.
var drivers = []string{"veth", "dummy", "ifb", "vxlan", "geneve", "tun", "wireguard", "macvlan", "ipvlan", "bonding"}

// indexed unpacks the modules that guests have, which takes a guest far longer, and makes their index.
func indexed(ctx context.Context, kernel string) error {
	if _, err := os.Stat(filepath.Join(kernel, "lib")); errors.Is(err, os.ErrNotExist) {
		if err := os.Symlink("usr/lib", filepath.Join(kernel, "lib")); err != nil { // packages of Debian 13 and later
			return fmt.Errorf("index modules: %w", err)
		}
	}
	releases, err := filepath.Glob(filepath.Join(kernel, "lib/modules/*"))
	if err != nil || len(releases) != 1 {
		return fmt.Errorf("%s has modules of %d kernels, want 1", kernel, len(releases))
	}
	release := filepath.Base(releases[0])
	if _, err := os.Stat(filepath.Join(releases[0], "modules.dep.bin")); err == nil {
		return nil
	}
	var packed []string
	root := filepath.Join(kernel, "lib/modules") + "/"
	err = filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		name := strings.TrimPrefix(file, root)
		switch {
		case err != nil || name == "":
			return err
		case keepModule(name, entry):
			if strings.HasSuffix(name, ".ko.xz") {
				packed = append(packed, file)
			}
		case entry.IsDir():
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index modules: %w", err)
	}
	commands := [][]string{{"depmod", "-b", kernel, release}}
	if len(packed) > 0 {
		commands = slices.Insert(commands, 0, append([]string{"xz", "-d"}, packed...))
	}
	for _, command := range commands {
		if out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s for modules of %s: %w: %s", command[0], release, err, out)
		}
	}
	return nil
}

// kernelFile is the kernel within what its packages have.
func kernelFile(kernel string) (string, error) {
	var found []string
	for _, pattern := range []string{"boot/vmlinuz-*", "lib/modules/*/vmlinuz"} { // the second since 7.3
		files, err := filepath.Glob(filepath.Join(kernel, pattern))
		if err != nil {
			return "", fmt.Errorf("find the kernel: %w", err)
		}
		found = append(found, files...)
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%s has %d kernels, want 1", kernel, len(found))
	}
	return found[0], nil
}

// keepModule says whether guests have a file or directory below lib/modules.
func keepModule(name string, entry fs.DirEntry) bool {
	_, name, inside := strings.Cut(name, "/") // the release
	if !inside || !strings.Contains(name, "/") {
		return name != "build" && name != "source" && name != "vmlinuz"
	}
	if entry.IsDir() {
		name += "/"
	}
	for _, part := range modules {
		if strings.HasPrefix(name, part) {
			return true
		}
	}
	rest, isNet := strings.CutPrefix(name, "kernel/drivers/net/")
	if name == "kernel/drivers/" || isNet && rest == "" {
		return true
	}
	first, _, _ := strings.Cut(rest, "/")
	return isNet && slices.Contains(drivers, strings.TrimSuffix(strings.TrimSuffix(first, ".xz"), ".ko"))
}
