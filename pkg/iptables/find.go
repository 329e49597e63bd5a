package iptables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// lockEnv is the variable of iptables that names another lock file. Commands get it, too: they and this process share one lock.
const lockEnv = "XTABLES_LOCKFILE"

// commonLock is where iptables-legacy has its lock if that variable is not set.
const commonLock = "/run/xtables.lock"

// lockFile returns the path of the lock that this process and its commands use.
func lockFile() string { return cmp.Or(os.Getenv(lockEnv), commonLock) }

// Find looks for the commands of a backend in PATH and runs them to see their versions. It does not prove that the kernel has
// the backend: Tools.Prove does.
func Find(ctx context.Context, backend Backend) (*Tools, error) {
	if backend != Legacy && backend != NFT {
		return nil, fmt.Errorf("unknown backend %q of iptables; there are %s and %s", backend, Legacy, NFT)
	}
	m := &machine{backend: backend, lock: lock{lockFile()}}
	var version string
	for _, c := range []struct {
		to   *command
		name string
	}{{&m.write4, "iptables-restore"}, {&m.save4, "iptables-save"}, {&m.write6, "ip6tables-restore"}, {&m.save6, "ip6tables-save"}} {
		found, v, err := findCommand(ctx, backend, c.name)
		if err != nil {
			return nil, err
		}
		*c.to = found
		if version == "" {
			version = v
		}
	}
	m.older = isOlder(version, nativeSince)
	return &Tools{Backend: backend, Version: version, kernel: m}, nil
}

// findCommand looks for one function of iptables, "ip6tables-save" or "ip6tables", under the names that distributions give it.
func findCommand(ctx context.Context, backend Backend, name string) (command, string, error) {
	protocol, verb, _ := strings.Cut(name, "-")
	candidates := []struct {
		name string
		args []string
	}{
		{strings.TrimSuffix(protocol+"-"+string(backend)+"-"+verb, "-"), nil},
		{"xtables-" + string(backend) + "-multi", []string{name}},
		{name, nil},
	}
	var errs []error
	for _, candidate := range candidates {
		path, err := exec.LookPath(candidate.name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		c := command{path, candidate.args}
		version, err := c.run(ctx, "", "--version")
		if err == nil {
			err = rightBackend(backend, version)
		}
		if err == nil {
			return c, strings.TrimSpace(version), nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", path, err))
	}
	return command{}, "", fmt.Errorf("find %s for the backend %s: %w", name, backend, errors.Join(errs...))
}

// rightBackend reads "iptables-restore v1.8.9 (nf_tables)". Versions before 1.8 name no backend; they are legacy.
func rightBackend(backend Backend, version string) error {
	if got := strings.Contains(version, "(nf_tables)"); got != (backend == NFT) {
		return fmt.Errorf("%s is of the other backend", strings.TrimSpace(version))
	}
	return nil
}

// isOlder reports whether a version, "iptables v1.8.7 (nf_tables)", is one before another. A version that cannot be read is not.
func isOlder(version string, than [3]int) bool {
	var v [3]int
	_, text, _ := strings.Cut(version, " v")
	n, _ := fmt.Sscanf(text, "%d.%d.%d", &v[0], &v[1], &v[2]) // 1.8 is 1.8.0
	return n >= 2 && slices.Compare(v[:], than[:]) < 0
}

// Prove returns nil if the backend works here for both families, and a *LacksError if the kernel lacks a feature. If this process
// may make network namespaces, Prove writes one rule of each kind into a temporary one; prepare is called in it and makes the sets
// that the rules refer to, see ProofSet. Otherwise it reads a table of this namespace, which proves less: the kernel has the backend,
// and this process may use it.
func (t *Tools) Prove(ctx context.Context, prepare func() error) error {
	m, real := t.kernel.(*machine)
	if !real {
		return nil
	}
	err := apart(func() error {
		errs := []error{prepare()}
		for _, family := range Families {
			errs = append(errs, m.prove(ctx, family))
		}
		return errors.Join(errs...)
	})
	if !errors.Is(err, errUnprovable) {
		return err
	}
	var errs []error
	for _, family := range Families {
		save, _ := m.commands(family)
		if _, err := save.run(ctx, "", "-t", "mangle"); err != nil {
			errs = append(errs, &LacksError{Backend: m.backend, Family: family, Err: err})
		}
	}
	return errors.Join(errs...)
}
