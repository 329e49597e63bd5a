//go:build linux

package bpfmaps

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/internal/testutil"
)

func TestIDOfAMapIsTheKernels(t *testing.T) {
	testutil.Privileged(t)
	var last ebpf.MapID
	for range 2 {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		want, ok := info.ID()
		if got, err := idOf(m); err != nil || !ok || got != want || got == last {
			t.Errorf("id %d (%v), want %d, and not %d", got, err, want, last)
		}
		last = want
	}
}
