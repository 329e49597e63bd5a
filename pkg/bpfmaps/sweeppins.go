package bpfmaps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
)

// SweepsName is the directory of the pinned sweep programs within that of a layout.
const SweepsName = "sweeps"

// The timeouts of flows are built into the sweep programs. So the pinned ones are what the next agent needs to go on by the
// timeouts in force, before it knows what the datastore says of them.

// PinSweeps pins the sweep programs of p in place of those that are pinned. There is no moment without pinned ones if there were any.
func (m *Maps) PinSweeps(p *Programs) error {
	dir := filepath.Join(m.dir, SweepsName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("pin sweep programs: %w", err)
	}
	for _, of := range sweepPrograms {
		program, err := p.Get(of.program)
		if err != nil {
			return err
		}
		if err := replacePin(program, filepath.Join(dir, of.program)); err != nil {
			return fmt.Errorf("pin program %s in %s: %w", of.program, dir, err)
		}
	}
	return nil
}

// replacePin pins a program at path. The copy is pinned, since ebpf would move the pin of a program that has one.
func replacePin(program *ebpf.Program, path string) error {
	twin, err := program.Clone()
	if err != nil {
		return err
	}
	defer twin.Close()
	next := path + "_next" // a file system of BPF allows no dots in names
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := twin.Pin(next); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// PinnedSweeper returns a sweeper that runs the pinned programs, by the timeouts that were in force when they were pinned. If
// they are not all there, the error is os.ErrNotExist. Close it before the maps.
func (m *Maps) PinnedSweeper() (s *Sweeper, err error) {
	var opened []*ebpf.Program
	defer func() {
		for _, program := range opened {
			err = errors.Join(err, program.Close())
		}
	}()
	return m.Flows.newWalks(sweepPrograms, func(name string) (*ebpf.Program, error) {
		path := filepath.Join(m.dir, SweepsName, name)
		program, err := ebpf.LoadPinnedProgram(path, nil)
		if err != nil {
			return nil, fmt.Errorf("open program %s: %w", path, err)
		}
		opened = append(opened, program)
		return program, nil
	})
}
