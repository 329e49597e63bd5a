package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/config"
)

// A newer agent has left a program at a hook that this one does not know. Cleanup detaches it, in whatever layout it is.
func TestProgramsOfANewerAgentAreCleanedUp(t *testing.T) {
	testutil.Privileged(t)
	testutil.NetNS(t).Enter(t)
	c := config.Defaults()
	c.BPFFS = testutil.BPFFS(t)
	c.Socket = filepath.Join(t.TempDir(), "none")
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Netfilter, AttachType: ebpf.AttachNetfilter, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	for i, layout := range []string{"v7", "v999"} {
		dir := filepath.Join(bpfmaps.InstanceDir(c.BPFFS, c.Instance), layout, bpfmaps.LinksName)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		attached, err := link.AttachNetfilter(link.NetfilterOptions{Program: program, ProtocolFamily: link.NetfilterProtoIPv4,
			Hook: link.NetfilterInetPostRouting, Priority: int32(-7 - i)})
		if err != nil {
			t.Fatal(err)
		}
		pin := filepath.Join(dir, "guard-post_routing-ip4-7")
		if err := errors.Join(attached.Pin(pin), attached.Close()); err != nil {
			t.Fatal(err)
		}
	}
	removed, err := Cleanup(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range removed {
		if strings.Contains(r.What, "guard-post_routing-ip4-7") {
			n++
		}
	}
	if n != 2 {
		t.Errorf("removed %v, want 2 programs", removed)
	}
	if _, err := os.Stat(bpfmaps.InstanceDir(c.BPFFS, c.Instance)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is there afterwards: %v", err)
	}
}
