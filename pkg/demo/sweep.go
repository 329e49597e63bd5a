package demo

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/ns"
)

// workPrefix begins the name of a demonstration's directory, instancePrefix that of its agent.
const (
	workPrefix     = "margay-demo-"
	instancePrefix = "demo-"
)

// ownerFile is in the directory: the process id of the demonstration, which locks the file for as long as it lives.
const ownerFile = "owner"

// own marks the directory as this process'. The lock ends with the process, however it ends.
func own(work string) (*os.File, error) {
	f, err := os.Create(filepath.Join(work, ownerFile))
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	if _, err := fmt.Fprintln(f, os.Getpid()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Sweep removes what demonstrations that were killed have left, and says what: their agents, what those enforced, their
// network namespaces and directories. Nothing of a demonstration that runs is touched.
func Sweep() (removed []string, err error) {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), workPrefix+"*"))
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, dir := range dirs {
		list, err := sweepOne(dir)
		removed, errs = append(removed, list...), append(errs, err)
	}
	return removed, errors.Join(errs...)
}

func sweepOne(dir string) (removed []string, err error) {
	f, err := os.Open(filepath.Join(dir, ownerFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // just being made, or not a demonstration's
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, nil // it runs
	}
	text, err := os.ReadFile(f.Name())
	if err != nil || len(text) == 0 { // just being made
		return nil, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("%s: no process id: %w", f.Name(), err)
	}
	ids := strconv.Itoa(pid) + "x" // begins what ns.NewID gives to that process
	agents, agentErr := endAgents(instancePrefix + ids)
	removed = append(removed, agents...)
	pinned, globErr := filepath.Glob(bpfmaps.InstanceDir(dataplane.Defaults().BPFFS, instancePrefix+ids) + "*")
	errs := []error{agentErr, globErr}
	for _, path := range append(pinned, dir) {
		if err := os.RemoveAll(path); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, path)
	}
	spaces, err := lab.RemoveLeftovers(ns.Prefix + ids)
	for _, name := range spaces {
		removed = append(removed, "network namespace "+name)
	}
	return removed, errors.Join(append(errs, err)...)
}

// endAgents ends the agents whose instance begins so.
func endAgents(instance string) (ended []string, err error) {
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, path := range processes {
		line, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		arguments := bytes.Split(line, []byte{0})
		at := slices.IndexFunc(arguments, func(a []byte) bool { return string(a) == "--instance" })
		if at < 0 || at+1 >= len(arguments) || !bytes.HasPrefix(arguments[at+1], []byte(instance)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return ended, err
		}
		if err := end(pid); err != nil {
			return ended, fmt.Errorf("end the agent of a killed demo, process %d: %w", pid, err)
		}
		ended = append(ended, fmt.Sprintf("agent %s, process %d", arguments[at+1], pid))
	}
	return ended, nil
}

// end ends a process that is no child of this one, and waits until it is gone.
func end(pid int) error {
	process, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(process)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := unix.PidfdSendSignal(process, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
		if gone, err := awaitEnd(process, 5*time.Second); gone || err != nil {
			return err
		}
	}
	return errors.New("it does not end")
}

// awaitEnd waits until a pidfd is readable: its process has ended.
func awaitEnd(process int, limit time.Duration) (gone bool, err error) {
	for until := time.Now().Add(limit); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, int(max(0, time.Until(until)).Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			return n > 0, err
		}
	}
}
