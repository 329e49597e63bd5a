package bpfmaps

import (
	"errors"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// small are sizes that make tests fast.
var small = map[string]uint32{
	bpf.MargayMapIp4Host: 1 << 10, bpf.MargayMapIp6Host: 1 << 10, bpf.MargayMapIp4Net: 1 << 10, bpf.MargayMapIp6Net: 1 << 10,
	bpf.MargayMapClassSets: 1 << 10, bpf.MargayMapSetNames: 1 << 10, bpf.MargayMapRuleNames: 1 << 10,
	bpf.MargayMapCt4: 1 << 10, bpf.MargayMapCt6: 1 << 10,
	bpf.MargayMapEvents: 1 << 16,
}

// openMaps opens an instance of the test's own.
func openMaps(t *testing.T) (*Maps, Options) {
	t.Helper()
	testutil.Privileged(t)
	o := Options{BPFFS: testutil.BPFFS(t), Instance: "test", MaxEntries: small}
	return mustOpen(t, o), o
}

func mustOpen(t *testing.T, o Options) *Maps {
	t.Helper()
	m, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func TestMapsOutliveTheAgent(t *testing.T) {
	m, o := openMaps(t)
	key := IP4(netip.MustParseAddr("10.0.0.1"))
	m.Addresses.IP4Host.Set(key, bpf.AddrInfo{Class: 7})
	if err := m.Addresses.IP4Host.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	m = mustOpen(t, o)
	got, err := m.Addresses.IP4Host.Load()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[bpf.IP4]bpf.AddrInfo{key: {Class: 7}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestOneAgentAnInstance(t *testing.T) {
	m, o := openMaps(t)
	if _, err := Open(o); !errors.Is(err, ErrLocked) {
		t.Errorf("second agent: %v, want ErrLocked", err)
	}
	other := o
	other.Instance = "other"
	mustOpen(t, other)
	reader, err := OpenPinned(o)
	if err != nil {
		t.Fatalf("a reader beside the agent: %v", err)
	}
	reader.Close()
	m.Close()
	mustOpen(t, o)
}

func TestOpenPinnedCreatesNothing(t *testing.T) {
	testutil.Privileged(t)
	o := Options{BPFFS: testutil.BPFFS(t)}
	if _, err := OpenPinned(o); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want os.ErrNotExist", err)
	}
	if _, err := os.Stat(InstanceDir(o.BPFFS, "")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the instance's directory was created (%v)", err)
	}
}

func TestMapsThatDoNotFitAreRefusedAndNamed(t *testing.T) {
	m, o := openMaps(t)
	path := filepath.Join(m.Dir(), bpf.MargayMapIp4Host)
	m.Close()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	alien, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer alien.Close()
	if err := alien.Pin(path); err != nil {
		t.Fatal(err)
	}
	_, err = Open(o)
	if !errors.Is(err, ErrIncompatible) {
		t.Fatalf("got %v, want ErrIncompatible", err)
	}
	t.Log(err)
}

func TestPinnedMapsKeepTheirSizeAndProgramsLoadOverThem(t *testing.T) {
	m, o := openMaps(t)
	m.Close()
	o.MaxEntries = maps.Clone(small)
	o.MaxEntries[bpf.MargayMapIp4Host] = 2048
	m = mustOpen(t, o)
	if len(m.Kept) != 1 {
		t.Errorf("Kept: %q, want one line", m.Kept)
	}
	for range 2 { // as after a restart
		programs, err := m.LoadPrograms(bpf.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := programs.Get(bpf.MargayProgFromPod); err != nil {
			t.Error(err)
		}
		if _, err := programs.Get("none"); err == nil {
			t.Error("a program that does not exist was found")
		}
		programs.Close()
	}
}

func TestSizesOfArraysAndUnknownMapsAreRefused(t *testing.T) {
	for _, sizes := range []map[string]uint32{{bpf.MargayMapSlots: 1}, {"none": 1}, {bpf.MargayMapDrops: 0}} {
		if _, err := sized(sizes); err == nil || !strings.Contains(err.Error(), "--map-size ") {
			t.Errorf("%v: %v", sizes, err)
		}
	}
}

func TestTablesOnRealMaps(t *testing.T) {
	m, _ := openMaps(t)
	want4, want6 := map[bpf.IP4]bpf.AddrInfo{}, map[bpf.Net6]bpf.AddrInfo{}
	for i := range 1000 {
		a4 := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		a6 := netip.AddrFrom16([16]byte{0xfd, 1, byte(i >> 8), byte(i)})
		want4[IP4(a4)] = bpf.AddrInfo{Class: uint32(i)}
		want6[Net6(netip.PrefixFrom(a6, 32+i%97))] = bpf.AddrInfo{Class: uint32(i)}
	}
	for k, v := range want4 {
		m.Addresses.IP4Host.Set(k, v)
	}
	for k, v := range want6 {
		m.Addresses.IP6Net.Set(k, v)
	}
	if err := errors.Join(m.Addresses.IP4Host.Sync(), m.Addresses.IP6Net.Sync()); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		got4, err4 := m.Addresses.IP4Host.Load()
		got6, err6 := m.Addresses.IP6Net.Load()
		if err := errors.Join(err4, err6); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want4, got4); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(want6, got6); diff != "" {
			t.Error(diff)
		}
	}
	check()
	for k := range want4 {
		if k.Addr[3]%2 == 0 {
			delete(want4, k)
			m.Addresses.IP4Host.Delete(k)
		}
	}
	for k := range want6 {
		if k.Addr[3]%2 == 0 {
			delete(want6, k)
			m.Addresses.IP6Net.Delete(k)
		}
	}
	// Somebody deletes what is about to be deleted.
	if err := m.Map(bpf.MargayMapIp4Host).Delete(IP4(netip.MustParseAddr("10.0.0.2"))); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.Addresses.IP4Host.Sync(), m.Addresses.IP6Net.Sync()); err != nil {
		t.Fatal(err)
	}
	check()
}

func TestAFullRealMapNamesTheEntryThatDidNotFit(t *testing.T) {
	m, _ := openMaps(t)
	for i := range 1030 {
		m.Addresses.IP4Host.Set(IP4(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})), bpf.AddrInfo{})
	}
	err := m.Addresses.IP4Host.Sync()
	if !errors.Is(err, unix.E2BIG) {
		t.Fatalf("got %v, want E2BIG", err)
	}
	if m.Addresses.IP4Host.Pending() != 6 {
		t.Errorf("%d pending, want the 6 that do not fit", m.Addresses.IP4Host.Pending())
	}
	t.Log(err)
}
