package bpfmaps

import (
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// found is a lookup of an endpoint: instructions that jump to "missing" if it is not there.
type found func(i int) asm.Instructions

const (
	lookups   = 100 // in one run of a program
	endpoints = 110 // on the node
)

func lookupIn(m *ebpf.Map, key int32) asm.Instructions {
	return asm.Instructions{
		asm.StoreImm(asm.RFP, -4, int64(key), asm.Word), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, m.FD()), asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, "missing"),
	}
}

// BenchmarkEndpointLookup says what a packet pays for its endpoint: in the array, for a lookup in a hash, and before one whose place in the
// array is another's is looked up in the array again. ADR 0021.
func BenchmarkEndpointLookup(b *testing.B) {
	testutil.Privileged(b)
	m, err := Open(Options{BPFFS: testutil.BPFFS(b), MaxEntries: small})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	array, hash := m.Map(bpf.MargayMapEndpoints), m.Map(bpf.MargayMapEndpointPlaces)
	for i := range uint32(endpoints) {
		here, far := bpf.Endpoint{Ifindex: 4 * i}, 4*i+1<<16
		for _, err := range []error{array.Put(here.Ifindex, &here), hash.Put(here.Ifindex, i), hash.Put(far, i)} {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	key := func(i int) int32 { return int32(i*37%endpoints) * 4 }
	floor := benchLookups(b, func(int) asm.Instructions { return nil })
	for name, f := range map[string]found{
		"array": func(i int) asm.Instructions {
			return append(lookupIn(array, key(i)), asm.LoadMem(asm.R3, asm.R0, 0, asm.Word), asm.JNE.Imm(asm.R3, key(i), "missing"))
		},
		"hash": func(i int) asm.Instructions { return lookupIn(hash, key(i)) },
		"array, then hash": func(i int) asm.Instructions {
			far, end := key(i)+1<<16, fmt.Sprint("end", i)
			ins := append(lookupIn(array, key(i)), asm.LoadMem(asm.R3, asm.R0, 0, asm.Word), asm.JEq.Imm(asm.R3, far, end))
			return append(append(ins, lookupIn(hash, far)...), asm.Mov.Imm(asm.R1, 0).WithSymbol(end))
		},
	} {
		b.Run(name, func(b *testing.B) {
			least := time.Hour
			for b.Loop() {
				least = min(least, benchLookups(b, f))
			}
			b.ReportMetric(float64(least-floor)/lookups, "ns/lookup")
		})
	}
}

// benchLookups is what one run of a program with lookups takes, the least of several.
func benchLookups(b *testing.B, f found) time.Duration {
	b.Helper()
	var ins asm.Instructions
	for i := range lookups {
		ins = append(ins, f(i)...)
	}
	ins = append(ins, asm.Mov.Imm(asm.R0, 0).WithSymbol("missing"), asm.Return())
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "lookups", Type: ebpf.SchedCLS, Instructions: ins, License: "GPL"})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	least := time.Hour
	for range 50 {
		_, took, err := p.Benchmark(make([]byte, 64), 1000, nil)
		if err != nil {
			b.Fatal(err)
		}
		least = min(least, took)
	}
	return least
}

// BenchmarkEndpointChange changes the policy of an endpoint in its place and in a further one.
func BenchmarkEndpointChange(b *testing.B) {
	testutil.Privileged(b)
	m, err := Open(Options{BPFFS: testutil.BPFFS(b), MaxEntries: small})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	e, err := m.OpenEndpoints()
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	if err := e.Set(bpf.Endpoint{Ifindex: 7}); err != nil {
		b.Fatal(err)
	}
	for i, name := range []string{"its place", "further place"} {
		ep := bpf.Endpoint{Ifindex: uint32(7 + i<<16), Flags: bpf.EPReady}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				ep.Ingress++
				if err := e.Set(ep); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
