package packetlog

import (
	"context"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/flows"
	"github.com/margay-project/margay/pkg/nflog"
)

func TestCopiesAreNamedByTheirHeaders(t *testing.T) {
	for name, c := range map[string]struct {
		packet testutil.Packet
		want   string
	}{
		"TCP":    {testutil.FromTo("10.0.0.1", "10.0.0.2", testutil.TCP{SrcPort: 40000, DstPort: 80}), "tcp 10.0.0.1:40000 10.0.0.2:80"},
		"UDP":    {testutil.FromTo("fd00::1", "fd00::2", testutil.UDP{SrcPort: 40000, DstPort: 53}), "udp [fd00::1]:40000 [fd00::2]:53"},
		"a ping": {testutil.FromTo("10.0.0.1", "10.0.0.2", testutil.ICMP{Type: 8, Code: 0}), "icmp 10.0.0.1:0 10.0.0.2:0 8"},
		"GRE":    {testutil.Packet{Src: testutil.FromTo("10.0.0.1", "10.0.0.2", nil).Src, Dst: testutil.FromTo("10.0.0.1", "10.0.0.2", nil).Dst, Protocol: 47}, "47 10.0.0.1:0 10.0.0.2:0"},
	} {
		got, ok := decode(nflog.Packet{Prefix: "p", Mark: 1, In: 2, Out: 3, Payload: c.packet.IP()}, time.Unix(5, 0))
		text := got.Packet.Protocol + " " + got.Packet.Src.String() + " " + got.Packet.Dst.String()
		if got.Packet.ICMP != nil {
			text += " " + string('0'+rune(got.Packet.ICMP.Type))
		}
		if !ok || text != c.want || got.Prefix != "p" || got.Mark != 1 || got.In != 2 || got.Out != 3 || !got.Time.Equal(time.Unix(5, 0)) {
			t.Errorf("%s: %q, %+v", name, text, got)
		}
	}
	whole := testutil.FromTo("10.0.0.1", "10.0.0.2", testutil.TCP{}).IP()
	for i := range 24 {
		if _, ok := decode(nflog.Packet{Payload: whole[:i]}, time.Time{}); ok {
			t.Errorf("%d bytes are enough", i)
		}
	}
}

// loggedDatagrams enters a namespace whose rules copy datagrams to port 9.
func loggedDatagrams(t *testing.T) {
	t.Helper()
	testutil.Privileged(t)
	testutil.RequireCommand(t, "iptables")
	testutil.NetNS(t).Enter(t)
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XTABLES_LOCKFILE", t.TempDir()+"/lock")
	rule := []string{"-w", "-t", "mangle", "-A", "INPUT", "-p", "udp", "--dport", "9", "-j"}
	for _, target := range [][]string{{"NFLOG", "--nflog-group", "8", "--nflog-prefix", "denied"}, {"DROP"}} {
		if out, err := exec.Command("iptables", append(rule, target...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// send sends n datagrams.
func send(t *testing.T, n int) {
	t.Helper()
	c, err := net.Dial("udp", "127.0.0.1:9")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range n {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
}

// start runs a Reader until the test ends.
func start(t *testing.T, decide func([]Copy) []flows.Unnamed) (published <-chan *flows.Record, r *Reader) {
	t.Helper()
	records := make(chan *flows.Record, 10_000)
	r, err := Open(Options{
		Group:  8,
		Decide: func(_ context.Context, batch []Copy) []flows.Unnamed { return decide(batch) },
		Name: func(_ context.Context, batch []flows.Unnamed) {
			for _, u := range batch {
				u.Record.Endpoint = "shop/web"
			}
		},
		Publish: func(list []*flows.Record) {
			for _, record := range list {
				records <- record
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return records, r
}

func denied(batch []Copy) []flows.Unnamed {
	var list []flows.Unnamed
	for _, c := range batch {
		list = append(list, flows.Unnamed{Ifindex: c.In, Record: &flows.Record{
			Time: c.Time, Packet: c.Packet, Verdict: flows.Deny, Direction: flows.Ingress, Decision: flows.Decision{Rule: c.Prefix},
		}})
	}
	return list
}

func TestACopyBecomesARecord(t *testing.T) {
	loggedDatagrams(t)
	published, _ := start(t, denied)
	send(t, 1)
	select {
	case r := <-published:
		if r.Endpoint != "shop/web" || r.Rule != "denied" || r.Dst.String() != "127.0.0.1:9" || r.Packet.Protocol != "udp" || time.Since(r.Time) > 20*time.Second {
			t.Errorf("%+v", r)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("no record")
	}
}

func TestCopiesThatComeFasterThanTheyAreDecidedAreCounted(t *testing.T) {
	loggedDatagrams(t)
	hold := make(chan struct{})
	published, r := start(t, func(batch []Copy) []flows.Unnamed {
		<-hold
		return denied(batch)
	})
	const sent = 4000
	send(t, sent)
	testutil.WaitFor(t, time.Minute, "copies to be lost", func() bool {
		send(t, 1)
		return r.Lost() > 0
	})
	close(hold)
	suppressed := uint64(0)
	testutil.WaitFor(t, time.Minute, "the loss to be in a record", func() bool {
		for {
			select {
			case record := <-published:
				suppressed += uint64(record.Suppressed)
			default:
				send(t, 1)
				return suppressed > 0
			}
		}
	})
}
