package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/config"
	bpfplane "github.com/margay-project/margay/pkg/dataplane/bpf"
	"github.com/margay-project/margay/pkg/inspect"
	xtables "github.com/margay-project/margay/pkg/iptables"
)

// iptables removes the chains, sets and marks of the iptables dataplane. They belong to no instance, so with an instance's name it does
// nothing.
func (c *cleanup) iptables(ctx context.Context, instance string) error {
	if instance != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, iptablesPatience)
	defer cancel()
	removed, err := removeIPTables(ctx)
	for _, r := range []struct {
		kind, format string
		n            int
	}{{"chains", "%d of iptables", removed.Chains}, {"sets", "%d IP sets", removed.Sets}, {"marks", "of %d connections", removed.Connections}} {
		if r.n > 0 {
			c.note(r.kind, fmt.Sprintf(r.format, r.n))
		}
	}
	if removed.Left != "" {
		c.note("not removed", removed.Left)
	}
	return err
}

// Removed is one thing that cleanup removed, or what it leaves and why.
type Removed struct {
	Kind string `json:"kind"` // program, maps, chains, sets, marks, directory, socket or "not removed"
	What string `json:"what"`
}

type cleanup struct{ removed []Removed }

func (c *cleanup) note(kind, what string) { c.removed = append(c.removed, Removed{kind, what}) }

// Cleanup removes everything that agents of an instance have left on this node, unless one of them runs. It returns what it removed,
// with an error, too.
func Cleanup(ctx context.Context, of config.Config) ([]Removed, error) {
	dir := bpfmaps.InstanceDir(of.BPFFS, of.Instance)
	unlock, err := lockInstance(dir)
	if err != nil {
		return nil, err
	}
	sole, err := reserveIPTables(of.Instance)
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	aside := bpfplane.StepAsideForGood(of.BPFFS, of.Instance)
	var c cleanup
	errs := []error{c.pinned(dir), c.iptables(ctx, of.Instance), c.socket(of)}
	if err := errors.Join(errs...); err != nil { // else all is removed, and packets may have been lost meanwhile
		errs = append(errs, aside)
	}
	return c.removed, errors.Join(append(errs, sole.Close(), unlock())...)
}

// reserveIPTables keeps an agent that enforces with iptables from starting meanwhile, and fails if one runs: such an agent has no
// directory to lock, and does not answer while its socket is not there yet. With an instance's name nothing of iptables is removed.
func reserveIPTables(instance string) (io.Closer, error) {
	if instance != "" {
		return io.NopCloser(nil), nil
	}
	sole, err := xtables.Sole()
	if err != nil {
		return nil, fmt.Errorf("%w: stop it first", err)
	}
	return sole, nil
}

// lockInstance keeps an agent from starting meanwhile, by the lock that agents acquire at their start.
func lockInstance(dir string) (unlock func() error, err error) {
	f, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("%w: stop it first", bpfmaps.ErrLocked)
		}
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
	}
	return f.Close, nil
}

// pinned removes everything pinned, of every layout version: first the programs, so that no program judges packets by maps that are
// partly removed.
func (c *cleanup) pinned(dir string) error {
	layouts, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	var errs []error
	for _, layout := range layouts {
		errs = append(errs, c.links(filepath.Join(dir, layout.Name(), "links")))
	}
	if err := errors.Join(errs...); err != nil {
		return err // without its maps a program that is still attached drops everything
	}
	for _, layout := range layouts {
		errs = append(errs, c.layout(filepath.Join(dir, layout.Name())))
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return errors.Join(append(errs, err)...)
	}
	c.note("directory", dir)
	return errors.Join(errs...)
}

func (c *cleanup) links(dir string) error {
	pins, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	named := OwnNumbers(dir) // known only while they are attached
	slices.SortStableFunc(pins, func(a, b os.DirEntry) int { return attach.DetachOrder(a.Name(), b.Name()) })
	for _, pin := range pins {
		path := filepath.Join(dir, pin.Name())
		if err := detach(path); err != nil {
			errs = append(errs, fmt.Errorf("detach %s: %w", path, err))
			continue
		}
		c.note("program", placeText(pin.Name(), named))
	}
	return errors.Join(errs...)
}

// detach detaches a program at once; if only the pin were removed, it would stay attached while another process has the link open. The pin goes
// first: one of a link that is attached nowhere says that its interface has gone. A link whose interface is gone is detached already, and its
// error is ignored.
func detach(path string) error {
	opened, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return err
	}
	unpinErr := os.Remove(path)
	detachErr := opened.Detach()
	if errors.Is(detachErr, unix.ENOLINK) {
		detachErr = nil
	}
	return errors.Join(unpinErr, detachErr, opened.Close())
}

// placeText says in words what a link's pin says by its name; the interface's name only if it is one of this network
// namespace.
func placeText(pin string, named bool) string {
	place := attach.PlaceOf(pin)
	if place.Ifindex == 0 {
		return "netfilter " + place.Side
	}
	if name := InterfaceNamed(int(place.Ifindex)); named && name != "" {
		return fmt.Sprintf("tcx/%s of %s", place.Side, name)
	}
	return fmt.Sprintf("tcx/%s of interface %d", place.Side, place.Ifindex)
}

func (c *cleanup) layout(dir string) error {
	maps := 0
	err := filepath.WalkDir(dir, func(_ string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == bpfmaps.SweepsName {
			return filepath.SkipDir // programs
		}
		if err == nil && !entry.IsDir() {
			maps++
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	if err := bpfmaps.Remove(dir); err != nil {
		return err
	}
	if maps > 0 {
		c.note("maps", fmt.Sprintf("%d below %s", maps, dir))
	}
	return nil
}

// socket removes the agent's socket, and its directory if that is the usual one and empty.
func (c *cleanup) socket(of config.Config) error {
	path := Socket(of)
	removed, err := inspect.RemoveLeftSocket(path)
	if err != nil {
		return err
	}
	if removed {
		c.note("socket", path)
	}
	if of.Socket != "" {
		return nil
	}
	if err := os.Remove(filepath.Dir(path)); err == nil {
		c.note("directory", filepath.Dir(path))
	}
	return nil
}
