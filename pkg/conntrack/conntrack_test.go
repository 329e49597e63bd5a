package conntrack_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/conntrack"
)

// open enters a namespace whose loopback interface is up and tracked, and connects to its table.
func open(t testing.TB) *conntrack.Conn {
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
	for _, command := range []string{"iptables", "ip6tables"} { // the first use of conntrack makes the kernel track
		if out, err := exec.Command(command, "-w", "-A", "INPUT", "-m", "conntrack", "--ctstate", "INVALID", "-j", "DROP").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	c, err := conntrack.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func all(t testing.TB, c *conntrack.Conn, f conntrack.Family, filter conntrack.Filter) []conntrack.Entry {
	t.Helper()
	var entries []conntrack.Entry
	if err := c.Dump(f, filter, func(e conntrack.Entry) { entries = append(entries, e) }); err != nil {
		t.Fatal(err)
	}
	return entries
}

// connect makes a TCP connection inside the namespace.
func connect(t testing.TB, host string) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		s, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- s
	}()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	server = <-accepted
	t.Cleanup(func() { _ = client.Close(); _ = server.Close() }) // some are reset
	return client, server
}

func send(t testing.TB, from, to net.Conn, text string) {
	t.Helper()
	if _, err := from.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if err := to.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(to, got); err != nil || string(got) != text {
		t.Fatalf("%.20q, %v", got, err)
	}
}

func tupleOf(client net.Conn) conntrack.Tuple {
	src, dst := client.LocalAddr().(*net.TCPAddr).AddrPort(), client.RemoteAddr().(*net.TCPAddr).AddrPort()
	return conntrack.Tuple{Src: src.Addr(), Dst: dst.Addr(), SrcPort: src.Port(), DstPort: dst.Port(), Protocol: unix.IPPROTO_TCP}
}

var families = map[conntrack.Family]string{conntrack.IPv4: "127.0.0.1", conntrack.IPv6: "::1"}

func TestConnectionsAreRead(t *testing.T) {
	c := open(t)
	for family, host := range families {
		client, server := connect(t, host)
		send(t, client, server, "ping")
		send(t, server, client, "pong")
		want := tupleOf(client)
		var got *conntrack.Entry
		for _, e := range all(t, c, family, conntrack.Filter{}) {
			if e.Original == want {
				got = &e
			}
		}
		if got == nil {
			t.Fatalf("%v is not in the table", want)
		}
		if got.Reply.Src != want.Dst || got.Reply.SrcPort != want.DstPort || got.Reply.DstPort != want.SrcPort || got.TCPState != conntrack.TCPEstablished ||
			got.Status&(conntrack.SeenReply|conntrack.Assured|conntrack.Confirmed) != conntrack.SeenReply|conntrack.Assured|conntrack.Confirmed ||
			got.Mark != 0 || got.Timeout < time.Hour || got.ID == 0 || got.PickedUp {
			t.Errorf("%+v", got)
		}
		if n := len(all(t, c, family, conntrack.Filter{Mark: 1, Mask: 1})); n != 0 {
			t.Errorf("%d entries have a mark", n)
		}
	}
}

func TestPingsAndDatagramsAreRead(t *testing.T) {
	c := open(t)
	udp, err := net.Dial("udp", "127.0.0.1:9")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	if _, err := udp.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := udp.Write([]byte("x")); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
		t.Fatal(err)
	}
	ping, err := net.Dial("ip4:icmp", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer ping.Close()
	if _, err := ping.Write([]byte{8, 0, 0xe5, 0xca, 0x12, 0x34, 0, 1}); err != nil { // type, code, checksum, id, sequence
		t.Fatal(err)
	}
	found := map[uint8]conntrack.Tuple{}
	for _, e := range all(t, c, conntrack.IPv4, conntrack.Filter{}) {
		found[e.Original.Protocol] = e.Original
	}
	if u := found[unix.IPPROTO_UDP]; u.DstPort != 9 || u.SrcPort == 0 {
		t.Errorf("%+v", u)
	}
	if p := found[unix.IPPROTO_ICMP]; p.ICMPType != 8 || p.ICMPID != 0x1234 {
		t.Errorf("%+v", p)
	}
}

func TestInsertedConnectionsGoOnFromEitherEnd(t *testing.T) {
	c := open(t)
	for family, host := range families {
		for _, first := range []string{"client", "server"} {
			client, server := connect(t, host)
			send(t, client, server, "before")
			want := tupleOf(client)
			flow := conntrack.Flow{Original: want, Mark: 0x10000, Timeout: time.Hour}
			testutil.WaitFor(t, time.Minute, "insertion between two late acknowledgements", func() bool {
				if _, err := deleteAddress(c, netip.MustParseAddr(host)); err != nil {
					t.Fatal(err)
				}
				errs := c.Insert([]conntrack.Flow{flow, flow})
				return errs[0] == nil && errors.Is(errs[1], conntrack.ErrExists)
			})
			big := strings.Repeat("z", 200_000)
			if first == "server" {
				client, server = server, client
			}
			send(t, client, server, "after")
			for range 3 {
				go func() { _, _ = client.Write([]byte(big)) }() // what fails is found by the reader
				got := make([]byte, len(big))
				if _, err := io.ReadFull(server, got); err != nil {
					t.Fatal(err)
				}
				client, server = server, client
			}
			entries := all(t, c, family, conntrack.Filter{Mark: 0x10000, Mask: 0xffff0000})
			if len(entries) != 1 || entries[0].Original != want || entries[0].TCPState != conntrack.TCPEstablished || entries[0].Status&conntrack.Assured == 0 || !entries[0].PickedUp {
				t.Errorf("%s, %s first: %+v", host, first, entries)
			}
			if n, err := deleteAddress(c, netip.MustParseAddr(host)); err != nil || n == 0 {
				t.Errorf("deleted %d, %v", n, err)
			}
		}
	}
}

// TestAnEntryIsReplaced: by the same connection as if the other end had opened it. What stands in the way is reported.
func TestAnEntryIsReplaced(t *testing.T) {
	c := open(t)
	for family, host := range families {
		src, dst := netip.AddrPortFrom(netip.MustParseAddr(host), 1000), netip.AddrPortFrom(netip.MustParseAddr(host), 2000)
		right := conntrack.Flow{Timeout: time.Hour, Mark: 0x20000, Original: conntrack.Tuple{Src: src.Addr(), Dst: dst.Addr(), SrcPort: src.Port(), DstPort: dst.Port(), Protocol: unix.IPPROTO_TCP}}
		wrong := right
		wrong.Original.SrcPort, wrong.Original.DstPort, wrong.Mark = right.Original.DstPort, right.Original.SrcPort, 0x10000
		if errs := c.Insert([]conntrack.Flow{wrong}); errs[0] != nil {
			t.Fatal(errs)
		}
		found := all(t, c, family, conntrack.Filter{Mark: 0x10000, Mask: 0xffff0000})
		if len(found) != 1 {
			t.Fatalf("%+v", found)
		}
		if errs := c.Replace([]conntrack.Entry{found[0], found[0]}, []conntrack.Flow{right, wrong}); errs[0] != nil || !errors.Is(errs[1], conntrack.ErrExists) {
			t.Errorf("%v", errs)
		}
		now := all(t, c, family, conntrack.Filter{Mark: 0x20000, Mask: 0xffff0000})
		if len(now) != 1 || now[0].Original != right.Original || now[0].TCPState != conntrack.TCPEstablished {
			t.Errorf("%+v", now)
		}
		if _, err := deleteAddress(c, src.Addr()); err != nil {
			t.Error(err)
		}
		var bad conntrack.Flow
		if errs := c.Replace(found, []conntrack.Flow{bad}); errs[0] == nil {
			t.Error("a flow without ends was added")
		}
	}
}

// many inserts datagram flows from 10.a.b.c to one address.
func many(t testing.TB, c *conntrack.Conn, n int) []conntrack.Flow {
	t.Helper()
	flows := make([]conntrack.Flow, n)
	for i := range flows {
		flows[i] = conntrack.Flow{Timeout: time.Hour, Mark: uint32(i%4)<<16 | 7, Original: conntrack.Tuple{
			Src: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), Dst: netip.MustParseAddr("192.0.2.1"),
			Protocol: unix.IPPROTO_UDP, SrcPort: 1000, DstPort: 53,
		}}
	}
	for _, err := range c.Insert(flows) {
		if err != nil {
			t.Fatal(err)
		}
	}
	return flows
}

func TestMarksAreWrittenUnderTheirMask(t *testing.T) {
	c := open(t)
	many(t, c, 2000)
	stale := func(e conntrack.Entry) (uint32, bool) { return 0xabcd5555, e.Original.Src.As4()[3] != 1 }
	n, err := c.Remark(conntrack.IPv4, conntrack.Filter{Mark: 1 << 16, Mask: 0xffff0000}, 0xffff0000, stale)
	if want := 2000/4 - 8; err != nil || n != want { // the last byte 1 is that of 8 entries
		t.Errorf("%d written, want %d; %v", n, want, err)
	}
	counts := map[uint32]int{}
	for _, e := range all(t, c, conntrack.IPv4, conntrack.Filter{}) {
		counts[e.Mark]++
	}
	if counts[0xabcd0007] != 492 || counts[1<<16|7] != 8 || counts[2<<16|7] != 500 {
		t.Errorf("%v", counts)
	}
	if n, err := c.Remark(conntrack.IPv4, conntrack.Filter{Mark: 0xabcd0000, Mask: 0xffff0000}, 0xffff0000, stale); n != 0 || err != nil {
		t.Errorf("what is as it shall be was written %d times, %v", n, err)
	}
}

func TestEntriesOfAnAddressAreDeleted(t *testing.T) {
	c := open(t)
	flows := many(t, c, 1000)
	if n, err := deleteAddress(c, flows[5].Original.Src); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if used, limit, err := c.Usage(); err != nil || used != 999 || limit < 999 {
		t.Errorf("%d of %d, %v", used, limit, err)
	}
	removed := map[netip.Addr]bool{flows[7].Original.Src: true, flows[300].Original.Src: true, flows[5].Original.Src: true}
	if n, err := c.DeleteAddresses(conntrack.IPv4, func(a netip.Addr) bool { return removed[a] }); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := deleteAddress(c, flows[5].Original.Dst); n != 997 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

func TestEntriesWithAMarkAreDeleted(t *testing.T) {
	c := open(t)
	many(t, c, 2000)
	marked := conntrack.Filter{Mark: 1 << 16, Mask: 0xffff0000}
	if n, err := c.DeleteMarked(conntrack.IPv4, marked); n != 500 || err != nil {
		t.Errorf("%d are deleted, %v", n, err)
	}
	if left := len(all(t, c, conntrack.IPv4, conntrack.Filter{})); left != 1500 || len(all(t, c, conntrack.IPv4, marked)) != 0 {
		t.Errorf("%d are left", left)
	}
}

func TestALaterConnectionOfTheSameTupleStays(t *testing.T) {
	c := open(t)
	flows := many(t, c, 1)
	old := all(t, c, conntrack.IPv4, conntrack.Filter{})
	if errs := c.Delete(old); errs[0] != nil {
		t.Fatal(errs)
	}
	if errs := c.Delete(old); !errors.Is(errs[0], conntrack.ErrNoEntry) {
		t.Errorf("%v", errs)
	}
	c.Insert(flows)
	old = all(t, c, conntrack.IPv4, conntrack.Filter{})
	old[0].ID++ // the kernel may give both the same number
	if errs := c.Delete(old); !errors.Is(errs[0], conntrack.ErrNoEntry) || len(all(t, c, conntrack.IPv4, conntrack.Filter{})) != 1 {
		t.Errorf("%v", errs)
	}
}

func TestErrorsNameTheConnection(t *testing.T) {
	c := open(t)
	gone := conntrack.Tuple{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), Protocol: unix.IPPROTO_TCP, SrcPort: 1, DstPort: 2}
	errs := c.SetMarks([]conntrack.Entry{{Original: gone}}, func(conntrack.Entry) uint32 { return 1 }, 1)
	if want := "mark the tracked connection of protocol 6, 10.0.0.1:1 to 10.0.0.2:2: no such connection is tracked"; !errors.Is(errs[0], conntrack.ErrNoEntry) || !strings.HasPrefix(errs[0].Error(), want) {
		t.Errorf("%v", errs)
	}
	mixed := gone
	mixed.Dst = netip.MustParseAddr("fd00::1")
	answer := gone
	answer.Protocol, answer.ICMPType = unix.IPPROTO_ICMP, 0
	for i, err := range c.Insert([]conntrack.Flow{{Original: mixed}, {Original: answer}, {Original: gone}, {}}) {
		if (err != nil) != (i != 2) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func BenchmarkDump(b *testing.B) {
	c := open(b)
	many(b, c, 50_000)
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		if err := c.Dump(conntrack.IPv4, conntrack.Filter{}, func(conntrack.Entry) { n++ }); err != nil || n < 50_000 {
			b.Fatal(n, err)
		}
	}
}

// More entries than are acknowledged at once, of both families: each gets its own result.
func TestDeleteReportsEachEntry(t *testing.T) {
	c := open(t)
	var flows []conntrack.Flow
	for i := range uint16(150) {
		for _, ends := range [][2]string{{"10.9.0.1", "10.9.0.2"}, {"fd09::1", "fd09::2"}} {
			flows = append(flows, conntrack.Flow{Timeout: time.Hour, Original: conntrack.Tuple{Src: netip.MustParseAddr(ends[0]),
				Dst: netip.MustParseAddr(ends[1]), Protocol: unix.IPPROTO_UDP, SrcPort: 1000 + i, DstPort: 53}})
		}
	}
	if err := errors.Join(c.Insert(flows)...); err != nil {
		t.Fatal(err)
	}
	entries := all(t, c, conntrack.Both, conntrack.Filter{})
	if len(entries) != len(flows) {
		t.Fatalf("%d entries of both families, want %d", len(entries), len(flows))
	}
	gone := map[int]bool{}
	for i := 0; i < len(entries); i += 7 {
		gone[i] = true
		if err := errors.Join(c.Delete(entries[i : i+1])...); err != nil {
			t.Fatal(err)
		}
	}
	for i, err := range c.Delete(entries) {
		if gone[i] != errors.Is(err, conntrack.ErrNoEntry) || !gone[i] && err != nil {
			t.Errorf("entry %d, deleted before: %t: %v", i, gone[i], err)
		}
	}
	if left := all(t, c, conntrack.Both, conntrack.Filter{}); len(left) > 0 {
		t.Errorf("%d entries are left", len(left))
	}
}

// deleteAddress removes the entries of an address.
func deleteAddress(c *conntrack.Conn, a netip.Addr) (deleted int, err error) {
	family := conntrack.IPv6
	if a.Is4() {
		family = conntrack.IPv4
	}
	return c.DeleteAddresses(family, func(other netip.Addr) bool { return other == a })
}
