package bpf

import (
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
)

// idler is an agent whose flows are idle for as long as a test says. It enforces nothing before enforce.
type idler struct {
	*BPF
	t *testing.T
}

// openIdler opens an agent whose own configuration lets idle TCP connections live for established.
func openIdler(t *testing.T, dir string, established time.Duration) *idler {
	t.Helper()
	c := dataplane.Defaults()
	c.BPFFS, c.EventRate, c.Timeouts.TCPEstablished = dir, 0, established
	c.MapSizes = map[string]uint32{bpf.MargayMapCt4: 2048, bpf.MargayMapCt6: 2048}
	dp, err := OpenBPF(c, NewFakeHost(), slog.New(slog.NewTextHandler(io.Discard, nil)))
	must(t, err)
	return &idler{dp, t}
}

// configure changes the timeout as the datastore does, without an Apply.
func (n *idler) configure(established time.Duration) {
	n.t.Helper()
	c := n.config
	c.Timeouts.TCPEstablished = established
	must(n.t, n.Configure(c))
	must(n.t, n.Reopen())
}

func (n *idler) enforce() {
	n.t.Helper()
	graph := calc.New("n")
	graph.Apply(restartStages[0].updates())
	must(n.t, n.Apply(n.t.Context(), graph.Flush()))
}

// keeps reports whether a connection that has been idle for so long outlives two rounds of sweeps.
func (n *idler) keeps(idle time.Duration) bool {
	n.t.Helper()
	now, hz, err := bpfmaps.FlowClock()
	must(n.t, err)
	const tcp, established = 6, uint8(bpf.MargayCtStateCT_OPEN | bpf.MargayCtStateCT_REPLIED)
	entry := bpf.CtEntry{Seen: now - uint32(idle.Seconds()*hz/16), State: established}
	flow := bpfmaps.NewFlow(netip.MustParseAddrPort("10.0.0.1:1000"), netip.MustParseAddrPort("10.0.0.2:80"), tcp, entry)
	adder, err := n.kernel.maps.Flows.NewAdder(bpfmaps.Room{Unused: true, Share: func(uint32) (uint32, bool) { return 0, true }})
	must(n.t, err)
	added, err := adder.Add([]bpfmaps.Flow{flow})
	must(n.t, err)
	if added == 0 {
		n.t.Fatal("a flow of before is still there")
	}
	for range 2 {
		n.sweeps.began = time.Time{} // another round at once
		for again := true; again; again = n.sweeps.running {
			_, err := n.Sweep()
			must(n.t, err)
		}
	}
	left := 0
	for _, err := range n.kernel.maps.Flows.All() {
		must(n.t, err)
		left++
	}
	key := bpf.Ct4Key{A: flow.A.Addr().As4(), B: flow.B.Addr().As4(), Pa: flow.A.Port(), Pb: flow.B.Port(), Proto: tcp}
	if left > 0 {
		must(n.t, n.kernel.maps.Map(bpf.MargayMapCt4).Delete(&key))
	}
	return left > 0
}

func (n *idler) want(when string, idle time.Duration, kept bool) {
	n.t.Helper()
	if got := n.keeps(idle); got != kept {
		n.t.Errorf("%s: a connection idle for %v is kept: %v", when, idle, got)
	}
}

// TestANewAgentGoesOnByTheTimeoutsInForce: the datastore says 24 h, flags say 1 h, and an agent that has not read the datastore
// removes what was idle for more than 24 h only. What is dead goes meanwhile, however long it lasts.
func TestANewAgentGoesOnByTheTimeoutsInForce(t *testing.T) {
	testutil.Privileged(t)
	const flag, datastore = time.Hour, 24 * time.Hour
	dir := testutil.BPFFS(t)
	n := openIdler(t, dir, flag)
	n.want("the first agent, before its first Apply", 2*time.Hour, false)
	n.configure(datastore)
	n.enforce()
	n.want("the first agent", 2*time.Hour, true)
	mustClose(t, n.BPF)

	for range 2 { // the second one never has an Apply either
		n = openIdler(t, dir, flag)
		n.want("before the first Apply", 2*time.Hour, true)
		n.want("before the first Apply", 25*time.Hour, false)
		must(t, n.Reopen())
		n.want("reopened before the first Apply", 2*time.Hour, true)
		n.configure(2 * flag)
		n.want("configured before the first Apply", 3*time.Hour, true)
		mustClose(t, n.BPF)
	}

	n = openIdler(t, dir, flag)
	n.enforce()
	n.want("the datastore has no timeout any more", 2*time.Hour, false)
	n.configure(datastore)
	n.enforce()
	n.want("it has one again", 2*time.Hour, true)
	mustClose(t, n.BPF)
	n = openIdler(t, dir, flag)
	n.want("the agent after that", 2*time.Hour, true)
	mustClose(t, n.BPF)
}

// TestTimeoutsThatCannotBeReadHoldUpNothing: pins that somebody has removed or replaced, one of them or both.
func TestTimeoutsThatCannotBeReadHoldUpNothing(t *testing.T) {
	testutil.Privileged(t)
	for what, damage := range map[string]func(pin string) error{
		"removed":  os.Remove,
		"replaced": func(pin string) error { return os.Rename(filepath.Join(pin, "../../slots"), pin) },
		"left behind by an agent that was killed": func(pin string) error { return os.Rename(pin, pin+"_next") },
	} {
		dir := testutil.BPFFS(t)
		n := openIdler(t, dir, 24*time.Hour)
		n.enforce()
		n.want(what+", before", 2*time.Hour, true)
		pin := filepath.Join(n.kernel.maps.Dir(), bpfmaps.SweepsName, bpf.MargayProgSweep6)
		mustClose(t, n.BPF)
		must(t, damage(pin))
		n = openIdler(t, dir, time.Hour)
		n.want(what, 2*time.Hour, false)
		n.configure(3 * time.Hour)
		n.enforce()
		n.want(what+", after the first Apply", 2*time.Hour, true)
		mustClose(t, n.BPF)
		n = openIdler(t, dir, time.Hour)
		n.want(what+", the next agent", 2*time.Hour, true)
		mustClose(t, n.BPF)
	}
}
