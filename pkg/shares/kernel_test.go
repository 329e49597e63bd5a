package shares

import (
	"context"
	"encoding/binary"
	"log/slog"
	"net/netip"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/model"
)

// mostFilled is how many connections a test makes at most: some 100 MB of the kernel's memory.
const mostFilled = 300_000

// openTable enters a namespace that tracks connections, and connects to its table.
func openTable(b *testing.B) (open func() *conntrack.Conn, limit uint32) {
	b.Helper()
	testutil.Privileged(b)
	testutil.RequireCommand(b, "iptables")
	ns := testutil.NetNS(b)
	ns.Enter(b)
	b.Setenv("XTABLES_LOCKFILE", b.TempDir()+"/lock")
	if out, err := exec.Command("iptables", "-w", "-A", "INPUT", "-m", "conntrack", "--ctstate", "INVALID", "-j", "DROP").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	open = func() *conntrack.Conn {
		c, err := conntrack.Open()
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close() })
		return c
	}
	_, limit, err := open().Usage()
	if err != nil || limit > mostFilled {
		b.Skipf("a table of %d connections is too large to be filled: %v", limit, err)
	}
	return open, limit
}

// newKernelLimiter returns a limiter of a table with one endpoint.
func newKernelLimiter(table Table) (l *Limiter, pod netip.Addr) {
	pod = netip.MustParseAddr("10.0.0.1")
	ends := NewEnds(Known{Endpoints: []Endpoint{{ID: model.WorkloadID("evil", "m"), Addrs: []netip.Addr{pod}}}})
	return New(table, func() *Ends { return ends }, func() {}, slog.New(slog.DiscardHandler)), pod
}

// BenchmarkFullTable measures a look, and the passes over a table of the kernel that one endpoint has filled.
func BenchmarkFullTable(b *testing.B) {
	open, limit := openTable(b)
	table := open()
	l, pod := newKernelLimiter(table)
	b.Run("look", func(b *testing.B) {
		for b.Loop() {
			l.Look()
		}
	})
	b.Run("passes", func(b *testing.B) {
		for n := uint32(0); b.Loop(); {
			b.StopTimer()
			n = fill(b, table, pod, n, limit)
			b.StartTimer()
			removed := l.Removed()
			for l.Look() == 0 {
			}
			b.ReportMetric(float64(l.Removed()-removed), "removed")
		}
	})
}

// BenchmarkFlood adds connections of one endpoint at several rates for 20 s, and reports the greatest use of the table in percent and the
// connections that had no room.
func BenchmarkFlood(b *testing.B) {
	const every = 20 * time.Millisecond
	for _, rate := range []int{25_000, 50_000, 75_000} {
		b.Run(strconv.Itoa(rate), func(b *testing.B) {
			open, limit := openTable(b)
			l, pod := newKernelLimiter(open())
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			go l.Run(ctx)
			table, most, refused, n := open(), uint32(0), 0, uint32(0)
			began := time.Now()
			for b.Loop() {
				for due := began; time.Since(began) < 20*time.Second; due = due.Add(every) {
					time.Sleep(time.Until(due)) // the pace of the flood
					for _, err := range table.Insert(opened(pod, n, rate*int(every)/int(time.Second))) {
						if n++; err != nil {
							refused++
						}
					}
					entries, _, err := table.Usage()
					if err != nil {
						b.Fatal(err)
					}
					most = max(most, entries)
				}
			}
			b.ReportMetric(float64(n)/time.Since(began).Seconds(), "opened/s")
			b.ReportMetric(100*float64(most)/float64(limit), "%most")
			b.ReportMetric(float64(refused), "refused")
			b.ReportMetric(float64(l.Removed())/time.Since(began).Seconds(), "removed/s")
		})
	}
}

// opened are connections that an opener has opened, beginning with the n-th.
func opened(opener netip.Addr, n uint32, many int) []conntrack.Flow {
	list := make([]conntrack.Flow, 0, many)
	for range many {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], 0x64400000+n)
		n++
		list = append(list, conntrack.Flow{Timeout: time.Hour, Original: conntrack.Tuple{Src: opener, Dst: netip.AddrFrom4(a),
			Protocol: unix.IPPROTO_TCP, SrcPort: 1, DstPort: 1}})
	}
	return list
}

// fill adds connections of an opener until the table is full. n distinguishes them from earlier ones.
func fill(t testing.TB, table *conntrack.Conn, opener netip.Addr, n, limit uint32) uint32 {
	t.Helper()
	for {
		table.Insert(opened(opener, n, 1000))
		n += 1000
		if entries, _, err := table.Usage(); err != nil || entries >= limit-1000 {
			return n
		}
	}
}
