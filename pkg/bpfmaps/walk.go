package bpfmaps

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
)

// walkProgram is a program that looks at the flows of one table, and the map from which it reads their keys.
type walkProgram struct{ program, table, keys string }

// walker has a program look at all flows of one table.
type walker interface {
	// part goes on with the next part of the table. done: it was the last one, or there is an error, and the next call begins again.
	part() (done bool, err error)
	close() error
}

// walk reads the keys of a table into the memory of a map, where the program finds them. Flows that exist all the time are looked at, some
// of them twice; ones that come or go meanwhile may be or not.
type walk[K any] struct {
	of      walkProgram
	program *ebpf.Program
	table   *ebpf.Map
	memory  []byte
	keys    []K           // backed by memory
	entries []bpf.CtEntry // which the kernel returns with the keys
	cursor  ebpf.MapBatchCursor
}

// newWalk returns a walk of program over table; keys is the map from which the program reads them. Close it before the maps. The walk has a
// copy of the program.
func newWalk[K any](of walkProgram, program *ebpf.Program, table, keys *ebpf.Map) (*walk[K], error) {
	if program.Type() != ebpf.Syscall {
		return nil, fmt.Errorf("program %s is of the type %s and was not made by this version of the agent", of.program, program.Type())
	}
	n, page := bpf.WalkedKeys, os.Getpagesize()
	size := (int(keys.MaxEntries())*int(keys.ValueSize()) + page - 1) / page * page
	memory, err := unix.Mmap(keys.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s into memory: %w", of.keys, err)
	}
	twin, err := program.Clone()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("copy program %s: %w", of.program, err), unix.Munmap(memory))
	}
	return &walk[K]{of: of, program: twin, table: table, memory: memory, keys: unsafe.Slice((*K)(unsafe.Pointer(&memory[0])), n),
		entries: make([]bpf.CtEntry, n)}, nil
}

func (w *walk[K]) part() (done bool, err error) {
	n, err := w.table.BatchLookup(&w.cursor, w.keys, w.entries, nil)
	done = errors.Is(err, ebpf.ErrKeyNotExist)
	if err != nil && !done {
		w.restart()
		return true, fmt.Errorf("read keys of map %s: %w", w.of.table, err)
	}
	part := bpf.WalkPart{Keys: uint32(n)}
	if done {
		part.Last = 1
		w.restart()
	}
	if _, err := w.program.Run(&ebpf.RunOptions{Context: part}); err != nil {
		w.restart()
		return true, fmt.Errorf("run program %s: %w", w.of.program, err)
	}
	return done, nil
}

func (w *walk[K]) restart() { w.cursor = ebpf.MapBatchCursor{} }

func (w *walk[K]) close() error { return errors.Join(w.program.Close(), unix.Munmap(w.memory)) }
