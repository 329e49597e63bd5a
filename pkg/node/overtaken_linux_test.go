package node

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/agent"
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/model"
)

// enforcing is a BPF dataplane whose programs are on cali1, of number 77, in a network namespace of its own.
func enforcing(t *testing.T, log io.Writer) (*Dataplane, config.Config) {
	t.Helper()
	testutil.Privileged(t)
	testutil.NetNS(t).Enter(t)
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "cali1", Index: 77}, PeerName: "peer1"}); err != nil {
		t.Fatal(err)
	}
	c := config.Defaults()
	c.Dataplane, c.BPFFS = "bpf", testutil.BPFFS(t)
	return opened(t, c, log), c
}

func opened(t *testing.T, c config.Config, log io.Writer) *Dataplane {
	t.Helper()
	d, err := Open(c, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := d.Apply(t.Context(), model.Changes{InSync: true}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		d.Prepare()
	}
	return d
}

// found are the findings of the look for programs before ours.
func found(t *testing.T, looks []agent.Look) []string {
	t.Helper()
	for _, look := range looks {
		if look.What == "programs before ours" {
			findings, err := look.Find()
			if err != nil {
				t.Fatal(err)
			}
			return findings
		}
	}
	t.Fatal("the dataplane does not look for programs before its own")
	return nil
}

// TestProgramsOfOthersBeforeOursAreAFinding: one that returns TCX_PASS lets packets past policy.
func TestProgramsOfOthersBeforeOursAreAFinding(t *testing.T) {
	d, _ := enforcing(t, io.Discard)
	if got := found(t, d.Looks); len(got) != 0 {
		t.Fatalf("without other programs: %q", got)
	}
	pass, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.LoadImm(asm.R0, 0, asm.DWord), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer pass.Close()
	for _, side := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
		for _, where := range []struct {
			anchor link.Anchor
			ahead  bool
		}{{link.Tail(), false}, {link.Head(), true}} {
			other, err := link.AttachTCX(link.TCXOptions{Interface: 77, Program: pass, Attach: side, Anchor: where.anchor})
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(found(t, d.Looks), "\n")
			if strings.Contains(got, "\n") || strings.Contains(got, "run before Margay's on interfaces of pods (cali1)") != where.ahead {
				t.Errorf("%v, ahead %t: %q", side, where.ahead, got)
			}
			if err := other.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := found(t, d.Looks); len(got) != 0 {
		t.Errorf("once they have gone: %q", got)
	}
}

// TestAnotherInstanceBeforeOursIsNamed: two agents in one network namespace, by mistake.
func TestAnotherInstanceBeforeOursIsNamed(t *testing.T) {
	var log bytes.Buffer
	d, c := enforcing(t, &log)
	c.Instance = "blue"
	blue := opened(t, c, io.Discard)
	if got := strings.Join(found(t, d.Looks), "\n"); !strings.HasPrefix(got, `programs of another instance of Margay ("blue") run before Margay's on interfaces of pods (cali1)`) {
		t.Errorf("found %q", got)
	}
	if got := found(t, blue.Looks); len(got) != 0 {
		t.Errorf("the other one, which is first, found %q", got)
	}
	rows := []inspect.EndpointRow{{Ifindex: 77}}
	if err := d.Inspect.Attachments(rows); err != nil || len(rows[0].Attached) != 2 || rows[0].Attached[0].BeforeOf != `another instance of Margay ("blue")` {
		t.Errorf("attached: %+v, %v", rows, err)
	}
	d.Resync()
	if err := d.Apply(t.Context(), model.Changes{InSync: true}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), `programs of another instance of Margay (\"blue\") run before Margay's on a workload interface`) {
		t.Errorf("log:\n%s", log.String())
	}
}

func TestManyOvertakenInterfacesAreCounted(t *testing.T) {
	if got := overtakenText(strings.Fields("a b c d e f g"), "other software"); !strings.Contains(got, "(a, b, c, d, e, and 2 more)") {
		t.Error(got)
	}
}
