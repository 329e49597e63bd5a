package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/flows"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
	"github.com/margay-project/margay/pkg/nflog"
)

// trackedFlow is a row of `margay show flows -o json`, as far as tests look at it.
type trackedFlow struct {
	Protocol, Opener, OpenerName, Responder, ResponderName, State, Egress, Ingress string
}

// shown decodes what a show command of the agent's node prints as JSON.
func shown[T any](t *testing.T, a *testcluster.Process, args ...string) (value T) {
	t.Helper()
	args = append([]string{"show"}, append(args, "-o", "json", "--socket", a.Socket, "--bpffs", a.BPFFS)...)
	out, err := a.Node.Run(t.Context(), "", testcluster.Build(t), args...)
	if err == nil {
		err = json.Unmarshal([]byte(out), &value)
	}
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return value
}

// show flows has the kernel's connections of pods, with their names, and says which of them policy in force has judged.
func TestFlowsAreTheKernelsConnections(t *testing.T) {
	forBackends(t, func(t *testing.T, flags ...string) {
		c := newCluster(t, oneNode, flags...)
		db, web := c.Pod(c.Node(0), "db"), c.Pod(c.Node(0), "web")
		tcp, udp := c.Serve(db.Host, 80)
		live := startLive(t, web, tcp, udp)
		find := func(protocol, name string, fits func(f *trackedFlow) bool) func() bool {
			return func() bool {
				return slices.ContainsFunc(shown[[]trackedFlow](t, c.Agent(0), "flows", "--pod", name), func(f trackedFlow) bool {
					to := tcp.Addr4()
					if protocol == "udp" {
						to = udp.Addr6()
					}
					return f.Protocol == protocol && f.Responder == to.String() && f.OpenerName == web.Name() && f.ResponderName == db.Name() && fits(&f)
				})
			}
		}
		open := func(f *trackedFlow) bool { return f.State == "open" && f.Egress == "current" && f.Ingress == "current" }
		testutil.WaitFor(t, soon, "the connection among the flows", find("tcp", "db", open))
		testutil.WaitFor(t, soon, "the UDP flow among the flows", find("udp", "web", open))
		if others := shown[[]trackedFlow](t, c.Agent(0), "flows", "--pod", "nope"); len(others) > 0 {
			t.Errorf("of another pod: %+v", others)
		}
		c.Policy("db", onlyGood)
		testutil.WaitFor(t, soon, "the UDP flow to be revoked", find("udp", "db", func(f *trackedFlow) bool { return f.State == "revoked" }))
		live.stream.Stop()
		live.flow.StopCut()
	})
}

// listen reads the copies of packets on a node until it is stopped.
func listen(t *testing.T, n *lab.Node) (stop func()) {
	t.Helper()
	var reader *nflog.Reader
	err := n.Do(func() (err error) {
		reader, err = nflog.Open(nflog.Options{Group: 29818, CopyRange: 128, Batch: 32, Delay: 20 * time.Millisecond, Buffer: 256 << 10})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- reader.Run(ctx, func(nflog.Packet) {}) }()
	return func() {
		cancel()
		if err := errors.Join(<-ended, reader.Close()); err != nil {
			t.Error(err)
		}
	}
}

// A pod floods packets that policy denies, each of which could be an event. What the agent does for them is bounded, others' flows go on,
// and without an agent it is the same for packets.
func TestAFloodOfDeniedPacketsCostsTheAgentLittle(t *testing.T) {
	const packets = 50_000
	forBackends(t, func(t *testing.T, flags ...string) {
		c := newCluster(t, oneNode, flags...)
		db, good, bad := c.Pod(c.Node(0), "db"), c.Pod(c.Node(0), "good"), c.Pod(c.Node(0), "bad")
		tcp, udp := c.Serve(db.Host, 80)
		c.Policy("db", onlyGood)
		c.AwaitPolicies(db, 1, 0)
		honest := startLive(t, good, tcp, udp)
		sender, err := traffic.OpenFrameSender(bad.Host, "eth0")
		if err != nil {
			t.Fatal(err)
		}
		defer sender.Close()
		frames := make([][]byte, 1000)
		for i := range frames {
			frames[i] = testutil.Packet{SrcMAC: bad.MAC(), DstMAC: lab.HostMAC, Src: bad.Addr4(), Dst: db.Addr4(),
				L4: testutil.UDP{SrcPort: uint16(1000 + i), DstPort: 9}}.Bytes()
		}
		pour := func(packets int) time.Duration {
			began := time.Now()
			for range packets / len(frames) {
				if err := sender.Send(frames); err != nil {
					t.Fatal(err)
				}
			}
			return time.Since(began)
		}
		watching := startMonitor(t, c.Agent(0), "--verdict", "deny")
		testutil.WaitFor(t, soon, "the monitor", func() bool {
			echo.DialTCP(bad.Host, netip.AddrPortFrom(db.Addr4(), 1), never)
			return len(watching.lines()) > 0
		})
		before := c.Agent(0).CPUTime()
		began := time.Now()
		took := pour(packets)
		used := c.Agent(0).CPUTime() - before
		watching.find("a denied datagram", func(r *flows.Record) bool {
			return r.Dst == netip.AddrPortFrom(db.Addr4(), 9) && r.Rule == "default/knp/shop/db#end-of-tier" && r.Endpoint == db.Name()
		})
		flooded := time.Since(began) // a second's worth of copies may wait, and some come after the flood
		if events, most := len(watching.lines()), int(2000*(flooded.Seconds()+2)); events > most {
			t.Errorf("%d events of %d packets in %v, at most %d are allowed", events, packets, flooded, most)
		}
		honest.awaitMore("after the flood")
		c.Agent(0).Kill()
		copied, not := time.Hour, time.Hour // what a packet takes, in the best of some rounds
		const some = 5000
		for range 5 {
			not = min(not, pour(some)/some)
			stop := listen(t, c.Node(0))
			copied = min(copied, pour(some)/some)
			stop()
		}
		t.Logf("a denied packet takes %v where copies are read, %v where none are; the agent used %v of CPU in %v for %d packets", copied, not, used, took, packets)
		// 2,000 copies a second cost some 4% of a CPU. On a busy machine the flood takes longer, the share stays.
		if used > took/3+300*time.Millisecond {
			t.Errorf("the agent used %v of CPU in %v", used, took)
		}
		if r := honest.stream.Stop(); r.Connects != 1 || r.Errors != 0 {
			t.Errorf("the honest connection: %+v", r)
		}
		honest.flow.Stop()
		c.Agent(0).Start()
	})
}

// Packets that chains drop are counted by reason, for people and as metrics, and a change of policy that gives the next generation
// leaves the counts alone.
func TestChainsCountWhatTheyDrop(t *testing.T) {
	forBackends(t, func(t *testing.T, flags ...string) {
		c := newCluster(t, oneNode, flags...)
		db, bad := c.Pod(c.Node(0), "db"), c.Pod(c.Node(0), "bad")
		c.Serve(db.Host, 80)
		c.Policy("db", onlyGood)
		c.AwaitPolicies(db, 1, 0)
		const each = 20
		send := func(src netip.Addr, l4 testutil.Layer4, protocol uint8) {
			t.Helper()
			for range each {
				if err := traffic.SendIP(bad, testutil.Packet{Src: src, Dst: db.Addr4(), L4: l4, Protocol: protocol}.IP()); err != nil {
					t.Fatal(err)
				}
			}
		}
		send(bad.Addr4(), testutil.UDP{SrcPort: 1, DstPort: 9}, 0)
		send(netip.MustParseAddr("10.99.0.1"), testutil.UDP{SrcPort: 1, DstPort: 9}, 0)
		send(bad.Addr4(), testutil.UDP{SrcPort: 1, DstPort: 4789}, 0)
		type drop struct {
			Direction, Reason string
			Packets           uint64
		}
		want := map[string]uint64{"ingress policy": each, "egress spoofed": each, "egress encap": each}
		check := func(when string) { // the kernel may still be busy with what was sent
			t.Helper()
			var list []drop
			defer func() {
				if t.Failed() {
					t.Logf("%s: %+v, want %v", when, list, want)
				}
			}()
			testutil.WaitFor(t, soon, "all drops to be counted "+when, func() bool {
				list = shown[[]drop](t, c.Agent(0), "drops")
				return len(list) >= len(want) && !slices.ContainsFunc(list, func(d drop) bool {
					n, ok := want[d.Direction+" "+d.Reason]
					return ok && d.Packets < n
				})
			})
		}
		check("at first")
		metric := func(direction, reason string) func() bool {
			return func() bool {
				for line := range strings.Lines(scrape(t, c.Node(0))) {
					if number, ok := strings.CutPrefix(line, fmt.Sprintf("margay_dropped_packets_total{direction=%q,reason=%q} ", direction, reason)); ok {
						n, err := strconv.Atoi(strings.TrimSpace(number))
						return err == nil && n >= each
					}
				}
				return false
			}
		}
		testutil.WaitFor(t, soon, "drops by policy among the metrics", metric("ingress", "policy"))
		testutil.WaitFor(t, soon, "spoofed ones among the metrics", metric("egress", "spoofed"))
		delete(want, "ingress policy") // its chains are others now
		c.Policy("db", `{podSelector: {matchLabels: {app: db}}, ingress: []}`)
		c.AwaitPolicies(db, 1, 0)
		send(netip.MustParseAddr("10.99.0.1"), testutil.UDP{SrcPort: 1, DstPort: 9}, 0)
		want["egress spoofed"] = 2 * each
		check("after a change")
	})
}
