package ipsets_test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/ipsets"
)

// run runs a command in the test's network namespace and returns what it prints.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func inNamespace(t testing.TB, commands ...string) {
	t.Helper()
	testutil.Privileged(t)
	for _, c := range commands {
		testutil.RequireCommand(t, c)
	}
	testutil.NetNS(t).Enter(t)
}

func TestTheIpsetBinaryShowsOurSetsAndItsChangesAreRepaired(t *testing.T) {
	inNamespace(t, "ipset")
	k := openKernel(t)
	s := ensure(t, k, class4)
	apply(t, s, put(key("0.0.0.0/0"), 1), put(key("10.0.0.0/8"), 2))
	for _, line := range []string{"0.0.0.0/1 skbmark 0x10000/0x1fff0000", "128.0.0.0/1 skbmark 0x10000/0x1fff0000", "10.0.0.0/8 skbmark 0x20000/0x1fff0000"} {
		if out := run(t, "ipset", "list", "mgy-class"); !strings.Contains(out, line) {
			t.Errorf("no %q in\n%s", line, out)
		}
	}
	run(t, "ipset", "add", "mgy-class", "10.0.0.0/8", "skbmark", "0x70000/0x1fff0000", "-exist")
	run(t, "ipset", "add", "mgy-class", "10.3.0.0/16", "nomatch")
	run(t, "ipset", "del", "mgy-class", "0.0.0.0/1")
	got := resync(t, s)
	if got.Example = ""; got != (ipsets.Repairs{Missing: 1, Changed: 1, Foreign: 1}) {
		t.Errorf("%+v", got)
	}
	run(t, "ipset", "flush", "mgy-class")
	if got := resync(t, s); got.Missing != s.Len() {
		t.Errorf("%+v", got)
	}
	want(t, k, s.Spec(), map[ipsets.Key]uint32{key("0.0.0.0/0"): 1, key("10.0.0.0/8"): 2, key("240.0.0.0/8"): 1, key("240.0.0.0/16"): 1})
}

func TestForeignEntriesOfOtherKindsAreRemoved(t *testing.T) {
	inNamespace(t, "ipset")
	k := openKernel(t)
	s := ensure(t, k, ipsets.Spec{Name: "mgy-own", Type: ipsets.NetInterface, Family: ipsets.IPv4})
	mine := key("10.0.0.1/32")
	mine.Interface = "cali1"
	apply(t, s, put(mine, 1))
	run(t, "ipset", "add", "mgy-own", "10.0.0.1,physdev:cali1")
	if got := resync(t, s); got.Foreign != 1 {
		t.Errorf("%+v", got)
	}
	if got := resync(t, s); got.Len() != 0 {
		t.Errorf("not removed: %+v", got)
	}
	if out := run(t, "ipset", "list", "mgy-own"); strings.Contains(out, "physdev") || !strings.Contains(out, "10.0.0.1,cali1 ") {
		t.Error(out)
	}
}

func TestForeignSetsDoNotMatterAndReferredOnesStay(t *testing.T) {
	inNamespace(t, "ipset", "iptables")
	run(t, "ipset", "create", "foreign", "bitmap:port", "range", "0-1000")
	run(t, "ipset", "create", "mgy-net", "hash:ip")
	t.Setenv("XTABLES_LOCKFILE", t.TempDir()+"/lock")
	run(t, "iptables", "-w", "-A", "INPUT", "-m", "set", "--match-set", "mgy-net", "src", "-j", "ACCEPT")
	k := openKernel(t)
	if names, err := k.Names("mgy"); err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
	taken := class4
	taken.Name = "mgy-net"
	err := ipsets.NewSet(k, taken).Ensure()
	if err == nil || !strings.Contains(err.Error(), "IP set mgy-net: the set of this name has another type") || !strings.Contains(err.Error(), "hash:ip") {
		t.Errorf("%v", err)
	}
	if err := k.Destroy("mgy-net"); err == nil || !strings.Contains(err.Error(), "rules refer to the set") {
		t.Errorf("%v", err)
	}
}

func TestAHundredThousandEntries(t *testing.T) {
	inNamespace(t)
	k := openKernel(t)
	for _, family := range []ipsets.Family{ipsets.IPv4, ipsets.IPv6} {
		const n = 100_000
		s := ensure(t, k, ipsets.Spec{Name: "mgy-" + family.String(), Type: ipsets.Net, Family: family, MaxEntries: n, HashSize: 65536})
		changes := make([]ipsets.Change, n)
		for i := range changes {
			changes[i] = put(ipsets.Key{Prefix: host(family, i)}, uint32(i%8000)+1)
		}
		before := heap()
		start := time.Now()
		apply(t, s, changes...)
		written := time.Since(start)
		own := (heap() - before) / n
		start = time.Now()
		if r := resync(t, s); r.Len() != 0 {
			t.Errorf("%+v", r)
		}
		read := time.Since(start)
		start = time.Now()
		apply(t, s, changes...)
		again := time.Since(start)
		start = time.Now()
		glance(t, s, true)
		t.Logf("%v: a glance in %v", family, time.Since(start))
		h, err := k.Header(s.Spec().Name)
		if err != nil || h.Entries != n+1 {
			t.Errorf("%+v, %v", h, err)
		}
		t.Logf("%v: written in %v, read back and compared in %v, applied again in %v, %d bytes of the kernel's and %d of the process' memory an entry", family, written, read, again, h.Memory/n, own)
		if h.Memory/n > 200 || own > 200 {
			t.Errorf("%d bytes of the kernel's and %d of the process' memory an entry", h.Memory/n, own)
		}
	}
}

// The dataplane compares sets all the time, as many as one percent of a CPU allows.
func BenchmarkDiffers(b *testing.B) {
	inNamespace(b)
	k := openKernel(b)
	for _, n := range []int{10, 1000, 1 << 13} {
		s := ensure(b, k, ipsets.Spec{Name: fmt.Sprint("mgy-", n), Type: ipsets.Net, Family: ipsets.IPv4, MaxEntries: 1 << 20})
		changes := make([]ipsets.Change, n)
		for i := range changes {
			changes[i] = put(ipsets.Key{Prefix: host(ipsets.IPv4, i)}, uint32(i%8000)+1)
		}
		apply(b, s, changes...)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				differs(b, s, false)
			}
		})
	}
}

// heap is how much of it is in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// host is the i-th address of a range.
func host(f ipsets.Family, i int) netip.Prefix {
	b := [4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}
	if f == ipsets.IPv4 {
		return netip.PrefixFrom(netip.AddrFrom4(b), 32)
	}
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 12: b[0], 13: b[1], 14: b[2], 15: b[3]}), 128)
}

func TestWhatTheKernelSupports(t *testing.T) {
	inNamespace(t)
	k := openKernel(t)
	for _, kind := range []ipsets.Type{ipsets.Net, ipsets.NetInterface, ipsets.NetPort} {
		for _, family := range []ipsets.Family{ipsets.IPv4, ipsets.IPv6} {
			if err := k.Supports(kind, family); err != nil {
				t.Error(err)
			}
		}
	}
	if err := k.Supports("hash:nothing", ipsets.IPv4); err == nil || !strings.Contains(err.Error(), "load the modules") {
		t.Errorf("%v", err)
	}
}
