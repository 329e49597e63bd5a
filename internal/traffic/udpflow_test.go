package traffic_test

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/internal/labtest"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
)

// An answering server that drops every fifth datagram and answers every seventh other one twice.
func TestUDPFlowCountsExactly(t *testing.T) {
	n := labtest.Node(t, labtest.New(t), "a")
	client, serving := labtest.Pod(t, n, "client"), labtest.Pod(t, n, "server")
	packets, err := traffic.ListenPackets(serving.Host, 53)
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
	f := labtest.Must[*traffic.UDPFlow](t)(traffic.StartUDPFlow(client.Host, netip.AddrPortFrom(serving.Addr4(), 53),
		traffic.UDPFlowOptions{Interval: time.Millisecond, Size: 100, Grace: 3 * time.Second}))
	testutil.WaitFor(t, labtest.Soon, "150 answers", func() bool { return f.Result().Received >= 150 })
	r := f.Stop()
	packets.Close()
	<-done
	want := traffic.UDPFlowResult{Sent: got, Received: got - lost, Lost: lost, Duplicated: twice, LongestGap: 1}
	if d := cmp.Diff(want, r); d != "" {
		t.Error(d)
	}
	if lost < 20 || twice < 10 {
		t.Errorf("the server lost only %d and doubled only %d", lost, twice)
	}
}

func TestUDPFlowOverBothFamiliesLosesNothing(t *testing.T) {
	n := labtest.Node(t, labtest.New(t), "a")
	client, serving := labtest.Pod(t, n, "client"), labtest.Pod(t, n, "server")
	server := labtest.ListenUDP(t, serving.Host, 53)
	var sent uint64
	for _, dst := range []netip.AddrPort{server.Addr4(), server.Addr6()} {
		f := labtest.Must[*traffic.UDPFlow](t)(traffic.StartUDPFlow(client.Host, dst, traffic.UDPFlowOptions{Interval: time.Millisecond}))
		testutil.WaitFor(t, labtest.Soon, "50 answers", func() bool { return f.Result().Received >= 50 })
		r := f.Stop()
		if d := cmp.Diff(traffic.UDPFlowResult{Sent: r.Sent, Received: r.Sent}, r); d != "" {
			t.Errorf("%s: %s", dst, d)
		}
		sent += r.Sent
	}
	if got := server.Received(); got != sent {
		t.Errorf("server received %d, sent were %d", got, sent)
	}
}

func TestUDPFlowSeesRefusal(t *testing.T) {
	n := labtest.Node(t, labtest.New(t), "a")
	client, serving := labtest.Pod(t, n, "client"), labtest.Pod(t, n, "server")
	f := labtest.Must[*traffic.UDPFlow](t)(traffic.StartUDPFlow(client.Host, netip.AddrPortFrom(serving.Addr4(), 53),
		traffic.UDPFlowOptions{Interval: time.Millisecond, Grace: time.Millisecond}))
	testutil.WaitFor(t, labtest.Soon, "ICMP errors", func() bool { return f.Result().Refused > 0 })
	if r := f.Stop(); r.Received != 0 || r.Lost != r.Sent || r.LongestGap != r.Sent {
		t.Errorf("to a closed port: %+v", r)
	}
}
