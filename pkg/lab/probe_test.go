package lab_test

import (
	"context"
	"encoding/binary"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

// dropTo makes the node drop what it forwards to a port, and allow again.
func dropTo(t *testing.T, n *lab.Node, protocol string, port uint16, match ...string) (allow func()) {
	t.Helper()
	testutil.RequireCommand(t, "iptables")
	rule := append([]string{"FORWARD", "-p", protocol, "--dport", strconv.Itoa(int(port))}, match...)
	rule = append(rule, "-j", "DROP")
	must[string](t)(n.Run(context.Background(), "", "iptables", append([]string{"-A"}, rule...)...))
	return func() {
		t.Helper()
		must[string](t)(n.Run(context.Background(), "", "iptables", append([]string{"-D"}, rule...)...))
	}
}

func TestStreamCountsEveryAnswer(t *testing.T) {
	n := addNode(t, newLab(t), "a")
	client, serving := addPod(t, n, "client"), addPod(t, n, "server")
	server := listenTCP(t, serving.Host, 80)
	for _, dst := range []netip.AddrPort{server.Addr4(), server.Addr6()} {
		s := must[*lab.Stream](t)(lab.StartStream(client.Host, dst, lab.StreamOptions{Interval: time.Millisecond}))
		testutil.WaitFor(t, soon, "100 answers", func() bool { return s.Result().Received >= 100 })
		r := s.Stop()
		if r.Sent != r.Received || r.Connects != 1 || r.Errors != 0 || r.LastErr != nil {
			t.Errorf("over an undisturbed connection to %s: %+v", dst, r)
		}
		if d := cmp.Diff(r, s.Stop()); d != "" {
			t.Errorf("a second Stop differs: %s", d)
		}
	}
	if got := server.Accepted(); got != 2 {
		t.Errorf("server accepted %d connections, want 2", got)
	}
}

func TestStreamSeesRetransmissionsAndBrokenConnections(t *testing.T) {
	n := addNode(t, newLab(t), "a")
	client, serving := addPod(t, n, "client"), addPod(t, n, "server")
	server := listenTCP(t, serving.Host, 80)
	s := must[*lab.Stream](t)(lab.StartStream(client.Host, server.Addr4(), lab.StreamOptions{Interval: time.Millisecond}))
	allow := dropTo(t, n, "tcp", 80)
	testutil.WaitFor(t, soon, "a retransmission", func() bool { return s.Result().Retransmits > 0 })
	lost := s.Result().Retransmits
	if r := s.Result(); r.Received != r.Sent-1 {
		t.Errorf("while packets are lost: %+v", r)
	}
	allow()
	before := s.Result().Received
	testutil.WaitFor(t, soon, "the connection to go on", func() bool { return s.Result().Received > before+10 })
	if r := s.Result(); r.Connects != 1 || r.Errors != 0 {
		t.Errorf("after a short loss: %+v", r)
	}

	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	testutil.WaitFor(t, soon, "an error", func() bool { return s.Result().Errors > 0 })
	listenTCP(t, serving.Host, 80)
	testutil.WaitFor(t, soon, "another connection", func() bool { return s.Result().Connects == 2 })
	before = s.Result().Received
	testutil.WaitFor(t, soon, "answers over it", func() bool { return s.Result().Received > before })
	if r := s.Stop(); r.LastErr == nil || r.Sent > r.Received+1 || r.Retransmits < lost {
		t.Errorf("after a broken connection: %+v", r)
	}
}

// An answering server that drops every fifth datagram and answers every seventh other one twice.
func TestUDPFlowCountsExactly(t *testing.T) {
	n := addNode(t, newLab(t), "a")
	client, serving := addPod(t, n, "client"), addPod(t, n, "server")
	packets, err := lab.ListenPackets(serving.Host, 53)
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	var got, lost, twice uint64 // read after done
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 2048)
		for {
			size, from, err := packets.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			got++
			answer := append([]byte("x\n"), b[:size]...)
			switch seq := binary.BigEndian.Uint64(b); {
			case seq%5 == 0:
				lost++
				continue
			case seq%7 == 0:
				twice++
				packets.WriteToUDPAddrPort(answer, from)
			}
			packets.WriteToUDPAddrPort(answer, from)
		}
	}()
	f := must[*lab.UDPFlow](t)(lab.StartUDPFlow(client.Host, netip.AddrPortFrom(serving.Addr4(), 53),
		lab.UDPFlowOptions{Interval: time.Millisecond, Size: 100, Grace: 100 * time.Millisecond}))
	testutil.WaitFor(t, soon, "150 answers", func() bool { return f.Result().Received >= 150 })
	r := f.Stop()
	packets.Close()
	<-done
	want := lab.UDPFlowResult{Sent: got, Received: got - lost, Lost: lost, Duplicated: twice, LongestGap: 1}
	if d := cmp.Diff(want, r); d != "" {
		t.Error(d)
	}
	if lost < 20 || twice < 10 {
		t.Errorf("the server lost only %d and doubled only %d", lost, twice)
	}
}

func TestUDPFlowOverBothFamiliesLosesNothing(t *testing.T) {
	n := addNode(t, newLab(t), "a")
	client, serving := addPod(t, n, "client"), addPod(t, n, "server")
	server := listenUDP(t, serving.Host, 53)
	var sent uint64
	for _, dst := range []netip.AddrPort{server.Addr4(), server.Addr6()} {
		f := must[*lab.UDPFlow](t)(lab.StartUDPFlow(client.Host, dst, lab.UDPFlowOptions{Interval: time.Millisecond}))
		testutil.WaitFor(t, soon, "50 answers", func() bool { return f.Result().Received >= 50 })
		r := f.Stop()
		if d := cmp.Diff(lab.UDPFlowResult{Sent: r.Sent, Received: r.Sent}, r); d != "" {
			t.Errorf("%s: %s", dst, d)
		}
		sent += r.Sent
	}
	if got := server.Received(); got != sent {
		t.Errorf("server received %d, sent were %d", got, sent)
	}
}

func TestUDPFlowSeesRefusal(t *testing.T) {
	n := addNode(t, newLab(t), "a")
	client, serving := addPod(t, n, "client"), addPod(t, n, "server")
	f := must[*lab.UDPFlow](t)(lab.StartUDPFlow(client.Host, netip.AddrPortFrom(serving.Addr4(), 53),
		lab.UDPFlowOptions{Interval: time.Millisecond, Grace: time.Millisecond}))
	testutil.WaitFor(t, soon, "ICMP errors", func() bool { return f.Result().Refused > 0 })
	if r := f.Stop(); r.Received != 0 || r.Lost != r.Sent || r.LongestGap != r.Sent {
		t.Errorf("to a closed port: %+v", r)
	}
}

func TestProberTellsRightFromWrong(t *testing.T) {
	n := addNode(t, newLab(t), "a")
	client, serving := addPod(t, n, "client"), addPod(t, n, "server")
	open, denied := listenTCP(t, serving.Host, 80), listenTCP(t, serving.Host, 81)
	dropTo(t, n, "tcp", 81)
	fast := lab.ProberOptions{Interval: time.Millisecond, MaxInFlight: 4}
	p := must[*lab.Prober](t)(lab.StartProber(client.Host, fast,
		lab.Target{Addr: open.Addr4(), Allowed: true, Timeout: soon},
		lab.Target{Addr: open.Addr4(), Allowed: false, Timeout: soon}, // a wrong one, so it must connect
		lab.Target{Addr: denied.Addr4(), Allowed: true, Timeout: 50 * time.Millisecond},
		lab.Target{Addr: denied.Addr4(), Allowed: false, Timeout: 50 * time.Millisecond},
	))
	testutil.WaitFor(t, soon, "20 attempts on each", func() bool {
		for _, r := range p.Results() {
			if r.Attempts < 20 {
				return false
			}
		}
		return true
	})
	r := p.Stop()
	var accepted uint64
	for i, want := range []struct {
		outcome lab.Outcome
		wrong   bool
	}{{lab.Connected, false}, {lab.Connected, true}, {lab.Timeout, true}, {lab.Timeout, false}} {
		if d := cmp.Diff(map[lab.Outcome]uint64{want.outcome: r[i].Attempts}, r[i].Outcomes); d != "" {
			t.Errorf("target %d: %s", i, d)
		}
		wantWrong := uint64(0)
		if want.wrong {
			wantWrong = r[i].Attempts
		}
		if r[i].Wrong != wantWrong || (r[i].FirstWrong.Took > 0) != want.wrong {
			t.Errorf("target %d: %d wrong of %d, want %d; first %+v", i, r[i].Wrong, r[i].Attempts, wantWrong, r[i].FirstWrong)
		}
		accepted += r[i].Outcomes[lab.Connected]
	}
	if got := open.Accepted(); got != accepted {
		t.Errorf("server accepted %d connections, the prober counts %d", got, accepted)
	}
	if got := denied.Accepted(); got != 0 {
		t.Errorf("the denied server accepted %d connections", got)
	}
	if r[2].Skipped+r[3].Skipped == 0 {
		t.Error("no turn was skipped although timeouts fill all places")
	}
}

// The kernel sends a lost SYN again after a second: a connection that stood because of that was not allowed at first.
func TestProberCountsALostSYN(t *testing.T) {
	n := addNode(t, newLab(t), "a")
	client, serving := addPod(t, n, "client"), addPod(t, n, "server")
	open := listenTCP(t, serving.Host, 80)
	stop := dropTo(t, n, "tcp", 80)
	p := must[*lab.Prober](t)(lab.StartProber(client.Host, lab.ProberOptions{Interval: time.Millisecond, MaxInFlight: 2},
		lab.Target{Addr: open.Addr4(), Allowed: true}))
	testutil.WaitFor(t, soon, "attempts whose SYN is lost", func() bool { return p.Results()[0].Skipped > 100 })
	stop()
	testutil.WaitFor(t, soon, "attempts that are answered", func() bool { return p.Results()[0].Outcomes[lab.Connected] > 10 })
	r := p.Stop()[0]
	if lost := r.Outcomes[lab.Timeout]; lost == 0 || lost > 2 || r.Wrong != lost || r.FirstWrong.Retransmits == 0 {
		t.Errorf("%+v", r)
	}
}
