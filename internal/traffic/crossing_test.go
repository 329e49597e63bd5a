package traffic_test

import (
	"errors"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/labtest"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// crossing is a client and a server between which segments are counted, directly and by a Service, over both families.
func crossing(t *testing.T) (n *lab.Node, client, serving *lab.Pod, server *echo.Server, asked []netip.AddrPort, c *traffic.Crossing) {
	n = labtest.Node(t, labtest.New(t), "a")
	client, serving = labtest.Pod(t, n, "client"), labtest.Pod(t, n, "server")
	server = labtest.ListenTCP(t, serving.Host, 80)
	asked = []netip.AddrPort{server.Addr4(), server.Addr6(), netip.MustParseAddrPort("10.96.0.1:8080"), netip.MustParseAddrPort("[fd96::1]:8080")}
	for i := range 2 {
		if err := n.SetService(lab.Service{Addr: asked[2+i], Protocol: "tcp", Backends: []netip.AddrPort{asked[i]}}); err != nil {
			t.Fatal(err)
		}
	}
	return n, client, serving, server, asked, labtest.Must[*traffic.Crossing](t)(traffic.OpenCrossing(client, serving, server.Port(), asked...))
}

func TestCrossingCountsWhatLeavesAndArrives(t *testing.T) {
	_, client, _, _, asked, c := crossing(t)
	for _, dst := range asked {
		for range 5 {
			if got := echo.DialTCP(client.Host, dst, labtest.Soon); got.Outcome != echo.Connected {
				t.Fatalf("%v: %+v", dst, got)
			}
		}
	}
	other := labtest.ListenTCP(t, client.Host, 80) // what is no connection of the client does not count
	if got := echo.DialTCP(client.Host, other.Addr4(), labtest.Soon); got.Outcome != echo.Connected {
		t.Fatalf("%+v", got)
	}
	// Of each a SYN, its answer and the banner, and an ACK of the answer and a FIN.
	if r := c.Stop(labtest.Soon); r.LostAll != 0 || r.LostBare != 0 || len(r.Lost) != 0 || r.Unseen != 0 || r.Begun < 20 || r.Left < 3*20 || r.Bare < 2*20 {
		t.Errorf("%+v", r)
	}
}

// dropping makes the node drop what it forwards, by a rule of iptables or ip6tables, until done is called, and waits then until something
// was dropped. It returns how many packets were by then.
func dropping(t *testing.T, n *lab.Node, command string, match ...string) (done func() uint64) {
	t.Helper()
	rule := append(append([]string{"FORWARD", "-p", "tcp"}, match...), "-j", "DROP")
	labtest.Must[string](t)(n.Run(t.Context(), "", command, append([]string{"-A"}, rule...)...))
	counter := regexp.MustCompile(` -c (\d+) `)
	return func() (dropped uint64) {
		t.Helper()
		testutil.WaitFor(t, labtest.Soon, "a packet to be dropped", func() bool {
			saved := labtest.Must[string](t)(n.Run(t.Context(), "", command, "-S", "FORWARD", "-v"))
			for _, line := range strings.Split(saved, "\n") {
				if m := counter.FindStringSubmatch(line); m != nil && strings.HasPrefix(line, "-A") {
					dropped, _ = strconv.ParseUint(m[1], 10, 64)
				}
			}
			return dropped > 0
		})
		labtest.Must[string](t)(n.Run(t.Context(), "", command, append([]string{"-D"}, rule...)...))
		return dropped
	}
}

// lists reports whether a lost segment of that kind is among those that are listed.
func lists(r traffic.CrossingResult, what string) bool {
	return slices.ContainsFunc(r.Lost, func(s string) bool { return strings.HasPrefix(s, what) })
}

// A connection that stands because the kernel has sent its SYN again has lost a segment.
func TestCrossingSeesALostSYN(t *testing.T) {
	n, client, _, _, asked, c := crossing(t)
	for _, dst := range []netip.AddrPort{asked[0], asked[2]} {
		before := c.Result().LostAll
		dropped := dropping(t, n, "iptables", "--dport", "80", "--syn")
		done := make(chan echo.Attempt, 1)
		go func() { done <- echo.DialTCP(client.Host, dst, labtest.Soon) }()
		want := before + dropped()
		if got := <-done; got.Outcome != echo.Connected || got.Retransmits == 0 {
			t.Fatalf("%v: %+v", dst, got)
		}
		if r := c.Result(); r.LostAll < want || r.LostAll >= r.Begun || !lists(r, "SYN with") {
			t.Errorf("%v: %+v, want %d lost", dst, r, want)
		}
	}
}

// Lost data of a connection that stands, and the lost answer to a SYN.
func TestCrossingSeesLostDataAndAnswers(t *testing.T) {
	n, client, _, _, asked, c := crossing(t)
	stream := labtest.Must[*echo.Stream](t)(echo.StartStream(client.Host, asked[1], echo.StreamOptions{Interval: time.Millisecond}))
	dropping(t, n, "ip6tables", "--dport", "80")()
	got := stream.Result().Received
	testutil.WaitFor(t, labtest.Soon, "the stream to go on", func() bool { return stream.Result().Received > got })
	stream.Stop()

	dropped := dropping(t, n, "iptables", "--sport", "80", "--tcp-flags", "SYN,ACK", "SYN,ACK")
	done := make(chan echo.Attempt, 1)
	go func() { done <- echo.DialTCP(client.Host, asked[0], labtest.Soon) }()
	dropped()
	if got := <-done; got.Outcome != echo.Connected {
		t.Fatalf("%+v", got)
	}
	r := c.Stop(time.Millisecond)
	for _, what := range []string{"data with", "SYN and ACK with"} {
		if !lists(r, what) {
			t.Errorf("no %q in %+v", what, r)
		}
	}
}

// A connection begins although an ACK was lost, and ends although a FIN or a reset was.
func TestCrossingSeesLostSegmentsWithoutData(t *testing.T) {
	n, client, _, _, asked, c := crossing(t)
	whole := func(dst netip.AddrPort) error { return echo.DialTCP(client.Host, dst, labtest.Soon).Err }
	aborted := func(dst netip.AddrPort) error {
		conn, err := traffic.OpenTCP(client.Host, dst, labtest.Soon)
		if err != nil {
			return err
		}
		_, err = conn.Read(make([]byte, 1)) // data that is not read makes the end of the connection a reset
		return errors.Join(err, conn.Close())
	}
	for _, lost := range []struct {
		what, command, flags string
		dst                  netip.AddrPort
		connect              func(netip.AddrPort) error
	}{
		{"ACK", "iptables", "ACK", asked[0], whole},
		{"FIN", "iptables", "FIN,ACK", asked[2], whole},
		{"reset", "ip6tables", "RST,ACK", asked[1], aborted},
	} {
		before := c.Result().LostBare
		dropped := dropping(t, n, lost.command, "--tcp-flags", "ALL", lost.flags)
		done := make(chan error, 1)
		go func() { done <- lost.connect(lost.dst) }()
		want := before + dropped()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		r := c.Result()
		if r.LostBare < want || !lists(r, lost.what+" with") {
			t.Errorf("%s: %+v, want %d lost", lost.what, r, want)
		}
	}
}

// A segment that is sent twice and arrives twice is not lost, however late its answer is.
func TestCrossingForgivesARetransmissionOfWhatArrived(t *testing.T) {
	_, client, serving, _, asked, c := crossing(t)
	syn := testutil.Packet{Src: client.Addr4(), Dst: serving.Addr4(), L4: testutil.TCP{SrcPort: 5000, DstPort: asked[0].Port(), Seq: 7, Flags: testutil.SYN}}.IP()
	if err := traffic.SendIP(client, syn, syn); err != nil {
		t.Fatal(err)
	}
	testutil.WaitFor(t, labtest.Soon, "both", func() bool { return c.Result().Begun == 2 })
	if r := c.Stop(labtest.Soon); r.LostAll != 0 || r.Begun != 2 {
		t.Errorf("%+v", r)
	}
}
