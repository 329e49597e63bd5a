package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sources are the suites that kernels and the guests' programs come from, signed by Debian's own keys.
const sources = `deb [signed-by=KEYS] http://deb.debian.org/debian bookworm main
deb [signed-by=KEYS] http://deb.debian.org/debian-security bookworm-security main
deb [signed-by=KEYS] http://deb.debian.org/debian bookworm-backports main
deb [signed-by=KEYS] http://deb.debian.org/debian trixie-backports main
`

const (
	debianKeys = "/usr/share/keyrings/debian-archive-keyring.gpg"
	listsLast  = 24 * time.Hour // how long the lists of packages are good
)

// archive is Debian's archive by way of apt, with lists and settings apart from those of the machine: nothing is
// installed, and no package of the machine counts.
type archive struct {
	dir    string
	config string
}

// unavailable is the want of something that this machine or the archive does not give: no fault of what is tested.
type unavailable struct{ error }

func (u unavailable) Unwrap() error { return u.error }

// openArchive prepares dir and reads the lists of packages, unless they have been read lately. Where the archive cannot be
// reached, earlier lists are good for longer: what they name may be in the cache.
func openArchive(ctx context.Context, dir string) (*archive, error) {
	a := &archive{dir, filepath.Join(dir, "apt.conf")}
	for _, sub := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, fmt.Errorf("open archive: %w", err)
		}
	}
	config := fmt.Sprintf(`Dir::State "%[1]s"; Dir::State::lists "%[1]s/lists"; Dir::State::status "%[1]s/status";
Dir::Cache "%[1]s/cache"; Dir::Etc::sourcelist "%[1]s/sources.list"; Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null"; Dir::Etc::preferencesparts "/dev/null"; Dir::Etc::main "/dev/null"; Dir::Etc::parts "/dev/null";
APT::Architectures { "amd64"; "arm64"; }; APT::Install-Recommends "false"; APT::Sandbox::User "root";
APT::Update::Error-Mode "any"; Acquire::Languages "none"; Acquire::Retries "3"; Acquire::http::Timeout "30";
`, dir)
	for name, content := range map[string]string{
		"apt.conf": config, "status": "", "sources.list": strings.ReplaceAll(sources, "KEYS", debianKeys),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return nil, fmt.Errorf("open archive: %w", err)
		}
	}
	read := filepath.Join(dir, "read")
	st, never := os.Stat(read)
	if never == nil && time.Since(st.ModTime()) < listsLast {
		return a, nil
	}
	if _, err := a.apt(ctx, "", "", "apt-get", "update", "-q"); err != nil && never == nil {
		fmt.Printf("Debian's lists of packages are those of %s: %v\n", st.ModTime().Format(time.DateOnly), err)
		return a, nil
	} else if err != nil {
		return nil, unavailable{fmt.Errorf("read Debian's lists of packages: %w", err)}
	}
	return a, os.WriteFile(read, nil, 0o644)
}

// apt runs one of apt's commands in a directory for an architecture (Debian's name of it); empty: they do not matter.
func (a *archive) apt(ctx context.Context, dir, arch string, command ...string) (string, error) {
	if arch != "" {
		command = append(command, "-o", "APT::Architecture="+arch)
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "APT_CONFIG="+a.config, "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8")
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return string(out), nil
}

// kernel is the package of the newest cloud kernel of a series, such as 6.12; of all of them if series is empty.
func (a *archive) kernel(ctx context.Context, arch, series string) (string, error) {
	list, err := a.apt(ctx, "", arch, "apt-cache", "search", "--names-only", "^linux-image-[0-9].*-cloud-"+arch+"$")
	if err != nil {
		return "", err
	}
	var names []string
	for line := range strings.Lines(list) {
		name, _, _ := strings.Cut(line, " ")
		names = append(names, name)
	}
	name := newest(names, series)
	if name == "" {
		return "", fmt.Errorf("find a cloud kernel of series %q for %s: Debian has none", series, arch)
	}
	return name, nil
}

// parts are the packages that a kernel's package is made of: itself, and since 7.3 its binary and its modules apart.
func (a *archive) parts(ctx context.Context, arch, name string) ([]string, error) {
	list, err := a.apt(ctx, "", arch, "apt-cache", "depends", "--important", name)
	if err != nil {
		return nil, err
	}
	parts := []string{name}
	for line := range strings.Lines(list) {
		_, on, _ := strings.Cut(strings.TrimSpace(line), "Depends: ")
		if strings.HasPrefix(on, "linux-binary-") || strings.HasPrefix(on, "linux-modules-") {
			parts = append(parts, on)
		}
	}
	return parts, nil
}

var kernelName = regexp.MustCompile(`^linux-image-(\d+)\.(\d+)\.(\d+)(?:-(\d+))?(?:\+deb\d+(?:\.(\d+))?)?-cloud-(amd64|arm64)$`)

// newest is the name with the highest version among packages of kernels, of one series if it is not empty. Names of
// another form (metapackages, debug symbols) do not count; empty: there is none.
func newest(names []string, series string) string {
	var best string
	var version []int
	for _, name := range names {
		m := kernelName.FindStringSubmatch(name)
		if m == nil || series != "" && m[1]+"."+m[2] != series {
			continue
		}
		var v []int
		for _, part := range m[1:6] {
			n, _ := strconv.Atoi(part) // empty: 0
			v = append(v, n)
		}
		if slices.Compare(v, version) > 0 {
			best, version = name, v
		}
	}
	return best
}

// unpacked returns a directory with the content of packages and of all they depend on; alone leaves out what they depend
// on. It is kept for the next run: a directory of one name is never changed.
func (a *archive) unpacked(ctx context.Context, name, arch string, alone bool, packages ...string) (string, error) {
	dir := filepath.Join(a.dir, name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	fetched, err := os.MkdirTemp(a.dir, "fetch-")
	if err != nil {
		return "", fmt.Errorf("fetch packages: %w", err)
	}
	defer os.RemoveAll(fetched)
	if err := os.Mkdir(filepath.Join(fetched, "partial"), 0o755); err != nil {
		return "", fmt.Errorf("fetch packages: %w", err)
	}
	command := []string{"apt-get", "install", "-q", "-y", "--download-only", "-o", "Dir::Cache::archives=" + fetched}
	if alone {
		command = []string{"apt-get", "download", "-q"} // to where it is run
	}
	if _, err := a.apt(ctx, fetched, arch, append(command, packages...)...); err != nil {
		return "", unavailable{fmt.Errorf("fetch %s: %w", name, err)}
	}
	root := filepath.Join(fetched, "root")
	debs, err := filepath.Glob(filepath.Join(fetched, "*.deb"))
	if err != nil || len(debs) == 0 {
		return "", fmt.Errorf("fetch %s: apt brought nothing (%w)", name, err)
	}
	for _, deb := range debs {
		if out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", deb, root).CombinedOutput(); err != nil {
			return "", fmt.Errorf("unpack %s: %w: %s", deb, err, out)
		}
	}
	if err := os.Rename(root, dir); err != nil {
		return "", fmt.Errorf("keep %s: %w", name, err)
	}
	return dir, nil
}
