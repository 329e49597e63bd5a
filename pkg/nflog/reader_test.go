package nflog_test

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/nflog"
)

// enter enters a namespace whose rules copy datagrams to port 9 of the host itself.
func enter(t *testing.T) {
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
	for _, command := range []string{"iptables", "ip6tables"} {
		for _, rule := range [][]string{{"MARK", "--set-mark", "0x1234"}, {"NFLOG", "--nflog-group", "7", "--nflog-prefix", "deny 17"}, {"DROP"}} {
			args := append([]string{"-w", "-t", "mangle", "-A", "INPUT", "-p", "udp", "--dport", "9", "-j"}, rule...)
			if out, err := exec.Command(command, args...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
	}
}

func open(t *testing.T, o nflog.Options) *nflog.Reader {
	t.Helper()
	r, err := nflog.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// start runs a reader until the test ends.
func start(t *testing.T, r *nflog.Reader, each func(nflog.Packet)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- r.Run(ctx, each) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func send(t *testing.T, host string, n int) {
	t.Helper()
	c, err := net.Dial("udp", net.JoinHostPort(host, "9"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range n {
		if _, err := c.Write([]byte("some payload of a datagram")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCopiesHaveWhatTheRuleAndThePacketSay(t *testing.T) {
	enter(t)
	got := make(chan nflog.Packet, 10)
	start(t, open(t, nflog.Options{Group: 7, CopyRange: 45}), func(p nflog.Packet) {
		p.Payload = append([]byte(nil), p.Payload...)
		got <- p
	})
	for host, want := range map[string]nflog.Packet{"127.0.0.1": {Family: 2}, "::1": {Family: 10}} {
		send(t, host, 1)
		select {
		case p := <-got:
			version := byte(4)
			if want.Family == 10 {
				version = 6
			}
			if p.Prefix != "deny 17" || p.Mark != 0x1234 || p.In != 1 || p.Out != 0 || p.Hook != 1 || p.Family != want.Family || len(p.Payload) != 45 || p.Payload[0]>>4 != version {
				t.Errorf("%s: %+v", host, p)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: no copy", host)
		}
	}
}

func TestAGroupHasOneReaderAndIsFreeAfterwards(t *testing.T) {
	enter(t)
	first, err := nflog.Open(nflog.Options{Group: 7})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nflog.Open(nflog.Options{Group: 7}); !errors.Is(err, nflog.ErrBusy) {
		t.Errorf("%v", err)
	}
	open(t, nflog.Options{Group: 8})
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	testutil.WaitFor(t, time.Minute, "the group to be free", func() bool {
		again, err := nflog.Open(nflog.Options{Group: 7})
		return err == nil && again.Close() == nil
	})
}

func TestAFloodIsReadAtABoundedRateAndTheLossCounted(t *testing.T) {
	enter(t)
	const rate, sent = 500, 20_000
	r := open(t, nflog.Options{Group: 7, CopyRange: 64, Rate: rate, Buffer: 8 << 10})
	start(t, r, func(nflog.Packet) {})
	begun := time.Now()
	send(t, "127.0.0.1", sent)
	testutil.WaitFor(t, time.Minute, "the loss to be counted", func() bool {
		send(t, "127.0.0.1", 1) // a copy shows the loss of those before
		return r.Stats().Lost > 0
	})
	s, seconds := r.Stats(), time.Since(begun).Seconds()
	t.Logf("%+v of %d in %.2f s", s, sent, seconds)
	if most := rate + seconds*rate + 200; float64(s.Read) > most { // a second's worth at once, and what one message holds
		t.Errorf("%d copies read, at most %.0f are allowed", s.Read, most)
	}
	if s.Read+s.Lost > sent+10_000 || s.Lost < 1000 {
		t.Errorf("%+v", s)
	}
}

func TestACopyIsLateByNoMoreThanTheDelay(t *testing.T) {
	enter(t)
	got := make(chan struct{}, 100)
	start(t, open(t, nflog.Options{Group: 7, CopyRange: 64, Batch: 50, Delay: 20 * time.Millisecond}), func(nflog.Packet) { got <- struct{}{} })
	send(t, "127.0.0.1", 3)
	for range 3 {
		select {
		case <-got:
		case <-time.After(20 * time.Second):
			t.Fatal("no copy")
		}
	}
}
