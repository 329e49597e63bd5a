package cli

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
	xtables "github.com/margay-project/margay/pkg/iptables"
)

// An agent that enforces with iptables has no directory of maps, and does not answer before its socket is there: cleanup refuses by
// what such an agent reserves, and removes nothing. An instance's name leaves iptables alone.
func TestCleanupRefusesBesideAnAgentWithIPTables(t *testing.T) {
	testutil.Privileged(t)
	testutil.NetNS(t).Enter(t)
	dir := t.TempDir()
	socket := filepath.Join(dir, "margay.sock")
	flags := []string{"cleanup", "--bpffs", filepath.Join(dir, "bpf"), "--socket", socket}
	clean := func(more ...string) (status int, out string) {
		leaveSocket(t, socket)
		var both bytes.Buffer
		status = execute(t.Context(), append(flags, more...), &both, &both)
		return status, both.String()
	}
	there := func() bool {
		_, err := os.Stat(socket)
		return err == nil
	}

	agent, err := xtables.Sole()
	if err != nil {
		t.Fatal(err)
	}
	if status, out := clean(); status != 2 || !strings.Contains(out, xtables.ErrNotSole.Error()) || !strings.Contains(out, "stop it first") || !there() {
		t.Errorf("beside the agent: status %d, socket is there: %t\n%s", status, there(), out)
	}
	if status, out := clean("--instance", "blue"); status != 0 || there() {
		t.Errorf("of an instance: status %d, socket is there: %t\n%s", status, there(), out)
	}
	if err := agent.Close(); err != nil {
		t.Fatal(err)
	}
	if status, out := clean(); status != 0 || there() {
		t.Errorf("after the agent: status %d, socket is there: %t\n%s", status, there(), out)
	}
	again, err := xtables.Sole()
	if err != nil {
		t.Fatalf("cleanup keeps its reservation: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// leaveSocket has a socket at path whose owner is gone.
func leaveSocket(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// Another agent's lock keeps cleanup from removing anything; the error names the command once.
func TestCleanupOfALockedInstanceNamesItself(t *testing.T) {
	testutil.Privileged(t)
	testutil.NetNS(t).Enter(t) // cleanup would remove chains if the lock did not hold it back
	bpffs := t.TempDir()
	dir := bpfmaps.InstanceDir(bpffs, "")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	status := execute(t.Context(), []string{"cleanup", "--bpffs", bpffs, "--socket", filepath.Join(bpffs, "none")}, &out, &out)
	want := "margay: cleanup: lock " + dir + ": another agent of this instance is running: stop it first\n"
	if status != 2 || out.String() != want {
		t.Errorf("status %d: %s, want %s", status, out.String(), want)
	}
}

// Another instance is left only if no agent of it runs. One that runs is none of cleanup's business.
func TestCleanupCallsNoInstanceLeftWhoseAgentRuns(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"blue", "green"} {
		links := filepath.Join(bpfmaps.InstanceDir(dir, name), "v1", bpfmaps.LinksName)
		if err := os.MkdirAll(filepath.Join(links, "7-ingress"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	agent, err := os.Open(bpfmaps.InstanceDir(dir, "green"))
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	if err := unix.Flock(int(agent.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	o := cleanupOptions{instanceFlags: instanceFlags{bpffs: dir}}
	var out bytes.Buffer
	if err := o.noteOthers(&out); err != nil {
		t.Fatal(err)
	}
	want := "another instance is left: margay cleanup --instance \"blue\"\n" +
		"another instance has an agent that runs (\"green\"), and its policy stays in force\n"
	if out.String() != want {
		t.Errorf("%s, want %s", &out, want)
	}
}
