package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// The two modes of forModes differ where they ought to: only without the shortcut does the node forward.
func TestShortcutPassesTheStackBy(t *testing.T) {
	testcluster.NeedsBPF(t, "the shortcut is BPF's")
	testutil.RequireCommand(t, "iptables")
	forwarded := map[bool]uint64{}
	forModes(t, func(t *testing.T, flags ...string) {
		c := newCluster(t, oneNode, flags...)
		client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
		tcp, _ := c.Serve(server.Host, 80)
		run := func(args ...string) string {
			out, err := c.Node(0).Run(context.Background(), "", "iptables", args...)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		run("-A", "FORWARD", "-p", "tcp")
		if got := echo.DialTCP(client.Host, tcp.Addr4(), soon); got.Outcome != echo.Connected {
			t.Fatalf("%v (%v)", got.Outcome, got.Err)
		}
		fields := strings.Fields(strings.Split(run("-nvxL", "FORWARD"), "\n")[2])
		n, err := strconv.ParseUint(fields[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		forwarded[len(flags) == 0] = n
	})
	if forwarded[true] != 0 || forwarded[false] == 0 {
		t.Errorf("packets forwarded with the shortcut: %d, without: %d", forwarded[true], forwarded[false])
	}
}

// counting attaches a program that counts IPv4 packets and lets them pass on, as other people's programs do.
func counting(t *testing.T, p *lab.Pod, at ebpf.AttachType, anchor link.Anchor) (count func() uint64) {
	t.Helper()
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { counts.Close() })
	protocol := binary.NativeEndian.Uint16([]byte{8, 0})
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 16, asm.Word), // __sk_buff.protocol
		asm.JNE.Imm(asm.R2, int32(protocol), "out"),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, counts.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("out"), // TCX_NEXT
		asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { prog.Close() })
	var l link.Link
	if err := p.Node().Do(func() (err error) {
		l, err = link.AttachTCX(link.TCXOptions{Interface: p.IfIndex(), Program: prog, Attach: at, Anchor: anchor})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return func() uint64 {
		var n uint64
		if err := counts.Lookup(uint32(0), &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
}

// Other people's programs on the same hooks run beside ours and survive a restart: those before see everything, those
// after only what policy allows.
func TestOtherProgramsRunBesideOurs(t *testing.T) {
	testcluster.NeedsBPF(t, "its programs are beside those of BPF mode, and see packets before iptables drops them")
	c := newCluster(t, oneNode, "--no-shortcut")
	client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
	tcp, _ := c.Serve(server.Host, 80)
	before := counting(t, server, ebpf.AttachTCXEgress, link.Head())
	after := counting(t, server, ebpf.AttachTCXEgress, link.Tail())
	check := func() {
		t.Helper()
		b, a := before(), after()
		c.Reach(client.Host, server.Host, 80, true)
		if before() == b || after() == a {
			t.Error("a program of somebody else saw nothing of allowed traffic")
		}
		c.Policy("server", `{podSelector: {matchLabels: {app: server}}, policyTypes: [Ingress]}`)
		c.AwaitPolicies(server, 1, 0)
		b, a = before(), after()
		if got := echo.DialTCP(client.Host, tcp.Addr4(), never); got.Outcome != echo.Timeout {
			t.Errorf("denied: %v", got.Outcome)
		}
		if before() == b || after() != a {
			t.Errorf("of denied traffic a program before ours saw %d packets, one after it %d", before()-b, after()-a)
		}
		c.Remove("policy-server")
		c.AwaitPolicies(server, 0, 0)
	}
	check()
	c.Agent(0).Kill()
	c.Agent(0).Launch() // it is not ready while a program is before its own
	testutil.WaitFor(t, 4*soon, "the next agent to be in sync", func() bool {
		a, err := c.Agent(0).Ask("status")
		return err == nil && a.Status != nil && a.Status.InSync
	})
	check()
}

// D-1: what a manifest said last that made sense stays in force, and it is reported.
func TestInvalidManifestKeepsTheLastGoodOne(t *testing.T) {
	c := newCluster(t, oneNode)
	client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
	c.Policy("server", onlyOpen)
	c.AwaitPolicies(server, 1, 0)
	tr := c.StartTraffic(client, server)
	for i, bad := range []string{
		`{podSelector: {matchLabels: {app: server}}, ingress: [{ports: [{port: 99999}]}]}`,
		`{podSelector: {matchLabels: {app: server`,
	} {
		c.Policy("server", bad)
		testutil.WaitFor(t, soon, "the problem to be reported", func() bool {
			a, err := c.Agent(0).Ask("status")
			return err == nil && a.Status != nil && a.Status.Problems > 0
		})
		tr.Some(fmt.Sprintf("under invalid manifest %d", i))
		c.Policy("server", onlyOpen)
		testutil.WaitFor(t, soon, "the problem to be gone", func() bool {
			a, err := c.Agent(0).Ask("status")
			return err == nil && a.Status != nil && a.Status.Problems == 0
		})
	}
	tr.Stop()
}

// A datastore that is gone changes nothing; when it is back, what it says now counts.
func TestDatastoreGoneAndBack(t *testing.T) {
	c := newCluster(t, oneNode)
	client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
	c.Policy("server", onlyOpen)
	c.AwaitPolicies(server, 1, 0)
	tr := c.StartTraffic(client, server)
	away := c.Dir + ".away"
	if err := os.Rename(c.Dir, away); err != nil {
		t.Fatal(err)
	}
	tr.Some("without a datastore")
	tr.Stop()
	if err := os.Rename(away, c.Dir); err != nil {
		t.Fatal(err)
	}
	c.Policy("server", `{podSelector: {matchLabels: {app: server}}, policyTypes: [Ingress]}`)
	// The agent notices by looking again, every 10 s: the watch went with the old directory.
	testutil.WaitFor(t, time.Minute, "the new policy to be enforced", func() bool {
		return echo.DialTCP(client.Host, netip.AddrPortFrom(server.Addr4(), openPort), never).Outcome == echo.Timeout
	})
}
