package bpfmaps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cilium/ebpf"
)

// slotDir is where the arrays of a slot are pinned, one file a part (rules, l4, rows, …): an array of maps dumps only the
// ids of its inner maps, so people look here.
func slotDir(dir string, slot uint32) string {
	return filepath.Join(dir, "slot", strconv.FormatUint(uint64(slot), 10))
}

// pin pins an array as its slot's, in place of the one that was.
func (a *arrays) pin(p part, slot uint32, inner *ebpf.Map) error {
	dir := slotDir(a.dir, slot)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("pin policy of slot %d: %w", slot, err)
	}
	path := filepath.Join(dir, partNames[p])
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("pin policy of slot %d: %w", slot, err)
	}
	if err := inner.Pin(path); err != nil {
		return fmt.Errorf("pin %s: %w", path, err)
	}
	return nil
}

// ensurePinned pins an array that an earlier agent had no time to pin.
func (a *arrays) ensurePinned(p part, slot uint32, inner *ebpf.Map) error {
	if _, err := os.Lstat(filepath.Join(slotDir(a.dir, slot), partNames[p])); err == nil {
		return nil
	}
	return a.pin(p, slot, inner)
}

// unpin removes the pins of a slot that has no arrays of its own any more.
func (a *arrays) unpin(slot uint32) error {
	if err := os.RemoveAll(slotDir(a.dir, slot)); err != nil {
		return fmt.Errorf("unpin policy of slot %d: %w", slot, err)
	}
	return nil
}
