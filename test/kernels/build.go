package main

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/margay-project/margay/test/kernels/job"
)

// programs are the packages of Debian that guests have: what tests and the kernel call.
var programs = []string{"busybox-static", "kmod", "iproute2", "iptables", "nftables", "ipset", "bpftool", "ipvsadm"}

// rootName is the name of the directory that has them for an architecture.
func rootName(arch string) string {
	return fmt.Sprintf("root-%s-%08x", arch, crc32.ChecksumIEEE([]byte(strings.Join(programs, " "))))
}

// applets are the commands that busybox plays in a guest.
var applets = []string{"sh", "cat", "ls", "true", "sleep", "echo", "grep", "dmesg", "mkdir"}

// legacy are the commands that Debian makes by "alternatives", when a package is installed.
var legacy = []string{"iptables", "ip6tables", "iptables-save", "ip6tables-save", "iptables-restore", "ip6tables-restore"}

// binaries builds what the tasks run for an architecture into dir: the tests of their packages, the agent, and the first
// process of a guest.
func binaries(ctx context.Context, dir, arch string, tasks []task) error {
	var packages []string
	agent := false
	for _, t := range tasks {
		if t.pkg == "" {
			agent = true
		} else if !slices.Contains(packages, t.pkg) {
			packages = append(packages, t.pkg)
		}
		agent = agent || t.agent
	}
	commands := [][]string{{"build", "-ldflags=-s -w", "-o", dir + "/guest", "./test/kernels/guest"}}
	if agent {
		commands = append(commands, []string{"build", "-ldflags=-s -w", "-o", dir + "/margay", "./cmd/agent"})
	}
	if len(packages) > 0 {
		commands = append(commands, append([]string{"test", "-c", "-ldflags=-s -w", "-o", dir + "/"}, packages...))
	}
	for _, args := range commands {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Env = append(os.Environ(), "GOARCH="+arch, "GOOS=linux", "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go %s for %s: %w\n%s", strings.Join(args, " "), arch, err, out)
		}
	}
	return nil
}

// initrd writes the initial file system of a guest: Debian's programs, the kernel's modules, this source tree, the
// binaries and the request.
func initrd(to, root, kernel, binaries string, request job.Request) error {
	f, err := os.Create(to)
	if err != nil {
		return fmt.Errorf("write initial file system: %w", err)
	}
	defer f.Close()
	i := newImage(f)
	i.tree("", root, func(name string, _ fs.DirEntry) bool {
		for _, without := range []string{"usr/share", "usr/include", "usr/lib/python3", "var", "etc/init.d"} {
			if name == without {
				return false
			}
		}
		return true
	})
	i.tree("lib/modules", filepath.Join(kernel, "lib/modules"), keepModule)
	for _, name := range applets {
		i.link("bin/"+name, "busybox")
	}
	for _, name := range legacy {
		i.link("usr/sbin/"+name, "xtables-nft-multi")
	}
	i.tree("src", ".", func(name string, entry fs.DirEntry) bool {
		return !strings.HasPrefix(path.Base(name), ".") && name != "bin"
	})
	i.tree("t", binaries, func(string, fs.DirEntry) bool { return true })
	i.file("init", filepath.Join(binaries, "guest"))
	i.link("usr/local/bin/margay", "/t/margay")
	for _, name := range []string{"root", "tmp", "run", "proc", "sys", "dev"} {
		i.dir(name)
	}
	text, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("write request: %w", err)
	}
	i.content(strings.TrimPrefix(job.RequestPath, "/"), 0o644, text)
	return i.close()
}
