package hostile

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
)

const (
	openFlows      = 170_000 // of each family
	halfOpenFlows  = 40_000
	firstFragments = 20_000
	floodAtOnce    = 10_000
	idleFor        = 1500 * time.Millisecond // longer than the directory believes a loss after
	idleShare      = 10                      // per cent of a CPU
)

// tenant has three pods beside the neighbours, and a process that works for it: see script.
type tenant struct {
	*neighbourhood
	pods     []*lab.Pod
	script   script
	commands io.Writer
	answers  *bufio.Scanner
}

func newTenant(n *neighbourhood, atLimits bool) *tenant {
	n.T.Helper()
	n.Namespace("evil")
	t := &tenant{neighbourhood: n}
	for i := range tenantPods {
		t.pods = append(t.pods, n.Pod(n.Node(0), fmt.Sprintf("evil/t%d", i)))
	}
	a, b := t.pods[0], t.pods[1]
	t.script = script{Dir: n.Dir, AtLimits: atLimits, From: a.Addrs(), To: b.Addrs(), FromMAC: a.MAC()}
	t.start()
	return t
}

// start starts the process. It ends with the test, at the latest when its input does.
func (t *tenant) start() {
	t.T.Helper()
	text, err := json.Marshal(t.script)
	if err != nil {
		t.T.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.T.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env, cmd.Stderr = append(os.Environ(), scriptEnv+"="+string(text)), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.T.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.T.Fatal(err)
	}
	if err := t.pods[0].Start(cmd); err != nil {
		t.T.Fatal(err)
	}
	t.T.Cleanup(func() {
		_ = in.Close() // ends it
		if err := cmd.Wait(); err != nil {
			t.T.Error("the tenant's process:", err)
		}
	})
	t.commands, t.answers = in, bufio.NewScanner(out)
	t.await("prepared")
}

func (t *tenant) await(want string) {
	t.T.Helper()
	if !t.answers.Scan() || t.answers.Text() != want {
		t.T.Fatalf("the tenant's process answers %q (%v), want %q", t.answers.Text(), t.answers.Err(), want)
	}
}

func (t *tenant) command(name, answer string) {
	t.T.Helper()
	if _, err := fmt.Fprintln(t.commands, name); err != nil {
		t.T.Fatal(err)
	}
	t.await(answer)
}

// play has the tenant work, from before it returns until the returned function is called.
func (t *tenant) play() (end func()) {
	t.T.Helper()
	t.command("play", "playing")
	return func() { t.command("rest", "resting") }
}

// fill fills the tables with what stays there without packets: open flows, and beyond its share of those half-open ones with the
// timeout of open ones. The pods do not reset the connections.
func (t *tenant) fill() {
	t.T.Helper()
	manifests := t.script.objects(0)
	manifests["referring"] = t.script.referring()
	for i := range t.pods {
		manifests[fmt.Sprintf("policy-evil.t%d", i)] = t.script.policy(i, 0)
	}
	for name, text := range manifests {
		if err := t.script.put(manifest{name, text}); err != nil {
			t.T.Fatal(err)
		}
	}
	for i := range t.pods {
		t.AwaitPolicies(t.pods[i], 1, 1+i/2) // the last one's egress has the referring policy, too
	}
	a, b := t.pods[0], t.pods[1]
	for _, command := range []string{"iptables", "ip6tables"} {
		if _, err := b.Run(context.Background(), "", command, "-A", "INPUT", "-p", "tcp", "-j", "DROP"); err != nil {
			t.T.Fatal(err)
		}
		if _, err := a.Run(context.Background(), "", command, "-A", "INPUT", "-p", "tcp", "-j", "DROP"); err != nil {
			t.T.Fatal(err)
		}
	}
	for _, v6 := range []bool{false, true} {
		for first := 0; first < openFlows; first += floodAtOnce {
			var syn, both, ack [][]byte
			for i := first; i < first+floodAtOnce; i++ {
				p := testutil.Packet{Src: a.Addr(v6), Dst: b.Addr(v6)}
				l4 := testutil.TCP{SrcPort: uint16(i), DstPort: uint16(7000 + i>>16)}
				step := func(flags uint8, seq, ack uint32) testutil.Packet {
					l4.Flags, l4.Seq, l4.Ack = flags, seq, ack
					p.L4 = l4
					return p
				}
				syn = append(syn, frame(a, step(testutil.SYN, 1, 0)))
				both = append(both, frame(b, answer(step(testutil.SYN|testutil.ACK, 1, 2))))
				ack = append(ack, frame(a, step(testutil.ACK, 2, 2)))
			}
			t.flood(a, syn)
			t.flood(b, both)
			t.flood(a, ack)
		}
		t.flood(a, t.script.halfOpen(v6, halfOpenFlows))
		t.flood(a, t.script.fragments(v6, firstFragments))
	}
	t.awaitIdle()
}

func (t *tenant) flood(p *lab.Pod, frames [][]byte) {
	t.T.Helper()
	sender, err := traffic.OpenFrameSender(p.Host, "eth0")
	if err != nil {
		t.T.Fatal(err)
	}
	defer sender.Close()
	if err := sender.Send(frames); err != nil {
		t.T.Fatal(err)
	}
}

// state says how much of each table is in use, and what the tenant's pods are refused.
func (t *tenant) state() string {
	t.T.Helper()
	use, err := t.Agent(0).Maps().Flows.Use(context.Background())
	if err != nil {
		t.T.Error(err)
	}
	var b strings.Builder
	for _, name := range []string{"ct4", "ct6"} {
		fmt.Fprintf(&b, "%s %d of %d; ", name, use[name].Entries, use[name].Max)
	}
	for _, p := range t.pods {
		fmt.Fprintf(&b, "%s dropped %v; ", p.Name(), t.Agent(0).Drops(p))
	}
	return b.String()
}

// awaitIdle waits until the agent has done what changes have left to do, so that it is in no other node's way.
func (n *neighbourhood) awaitIdle() {
	n.T.Helper()
	since, used := time.Now(), n.Agent(0).CPUTime()
	testutil.WaitFor(n.T, soon, "the agent to be idle", func() bool {
		took := time.Since(since)
		if took < idleFor {
			return false
		}
		now := n.Agent(0).CPUTime()
		idle := now-used <= took*idleShare/100
		since, used = time.Now(), now
		return idle
	})
}

func addrOf(addrs []netip.Addr, v6 bool) netip.Addr {
	for _, a := range addrs {
		if a.Is6() == v6 {
			return a
		}
	}
	return netip.Addr{}
}
