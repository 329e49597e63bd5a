package bpfmaps

import (
	"math"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// TestMemoryIsWhatTheKernelSays compares with what the kernel counts for each map, within 5 % of the sum.
func TestMemoryIsWhatTheKernelSays(t *testing.T) {
	testutil.Privileged(t)
	o := Options{BPFFS: testutil.BPFFS(t), MaxEntries: map[string]uint32{bpf.MargayMapCt6: 5000, bpf.MargayMapIp4Host: 3000}}
	want, missing, err := NeededMemory(o, ebpf.MustPossibleCPU())
	if err != nil || missing != want {
		t.Fatalf("without pinned maps %+v are missing of %+v (%v)", missing, want, err)
	}
	m, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var sum uint64
	for name, opened := range m.maps {
		info, err := opened.Info()
		if err != nil {
			t.Fatal(err)
		}
		says, _ := info.Memlock() // nothing is said of an empty trie
		sum += says
		t.Logf("map %s: %d bytes by our count, %d by the kernel's", name, mapMemory(m.spec.Maps[name], uint64(ebpf.MustPossibleCPU())).Empty, says)
	}
	if ratio := float64(want.Empty) / float64(sum); math.Abs(ratio-1) > 0.05 {
		t.Errorf("all maps: %d bytes by our count, %d by the kernel's", want.Empty, sum)
	}
	if sum == 0 || want.Full < want.Empty {
		t.Errorf("%+v", want)
	}
	all, missing, err := NeededMemory(o, ebpf.MustPossibleCPU())
	if err != nil || missing != (Memory{}) || all != want {
		t.Errorf("with all maps pinned %+v are missing of %+v, want none of %+v (%v)", missing, all, want, err)
	}
}
