//go:build linux

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/dataplane"
)

func TestEnvironmentSetsFlagsThatAreNotGiven(t *testing.T) {
	t.Setenv("MARGAY_SOCKET", "from-environment.sock")
	t.Setenv("MARGAY_DIR", "of the agent beside us") // must not make explain read manifests
	run := func(args ...string) string {
		var out bytes.Buffer
		execute(t.Context(), args, &out, &out)
		return out.String()
	}
	if got := run("explain", "a", "b:1"); !strings.Contains(got, "from-environment.sock") {
		t.Errorf("the environment was not read: %s", got)
	}
	if got := run("explain", "a", "b:1", "--socket", "given.sock"); !strings.Contains(got, "given.sock") {
		t.Errorf("the environment was preferred to the flag: %s", got)
	}
	t.Setenv("MARGAY_OUTPUT", "yaml")
	if got := run("explain", "a", "b:1"); !strings.Contains(got, "environment variable MARGAY_OUTPUT") {
		t.Errorf("a value that is wrong was taken: %s", got)
	}
}

func TestDefaultsAreThoseOfTheDataplane(t *testing.T) {
	if defaultBPFFS != dataplane.Defaults().BPFFS || defaultBPFFS != bpfmaps.DefaultBPFFS {
		t.Errorf("bpffs is %s here, %s in dataplane, %s in bpfmaps", defaultBPFFS, dataplane.Defaults().BPFFS, bpfmaps.DefaultBPFFS)
	}
	var c dataplane.Config
	if _, err := marks(defaultMarkMask, &c); err != nil {
		t.Fatal(err)
	}
	d := dataplane.Defaults()
	if c.MarkSeen != d.MarkSeen || c.MarkJudge != d.MarkJudge || c.MarkOwn != d.MarkOwn {
		t.Errorf("marks %#x %#x %#x, in dataplane %#x %#x %#x", c.MarkSeen, c.MarkJudge, c.MarkOwn, d.MarkSeen, d.MarkJudge, d.MarkOwn)
	}
}

func TestInstancesHaveSocketsOfTheirOwn(t *testing.T) {
	for want, f := range map[string]instanceFlags{
		"/run/margay/agent.sock":    {},
		"/run/margay-nx/agent.sock": {instance: "nx"},
		"/tmp/x.sock":               {instance: "nx", socket: "/tmp/x.sock"},
	} {
		if got := f.socketPath(); got != want {
			t.Errorf("socket %s, want %s", got, want)
		}
	}
}
