// Package bpfroom tells a process that is out of file descriptors or memory from a kernel that lacks a feature.
//
// After a map could not be made, cilium/ebpf makes a small one of the kind, and takes any failure of that for want of the feature, until the
// process ends. So its ErrNotSupported says nothing about the kernel while the process is out of something.
package bpfroom

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// What a try takes: as much as loading the programs of the dataplane over small maps.
const (
	descriptors = 96
	bytes       = 1 << 18
)

// Lacks returns what this process is out of, as an error of the kernel (EMFILE, ENFILE, ENOMEM); nil: of nothing. It tries that with a few
// file descriptors and an array, which every kernel with BPF has. Any goroutine may call it.
func Lacks() error {
	var open []int
	defer func() {
		for _, fd := range open {
			unix.Close(fd)
		}
	}()
	for range descriptors {
		fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if Short(err) {
			return fmt.Errorf("open %d file descriptors: %w", descriptors, err)
		}
		if err == nil {
			open = append(open, fd)
		}
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: bytes, MaxEntries: 1})
	if Short(err) {
		return fmt.Errorf("make an array of %d bytes: %w", bytes, err)
	}
	if err == nil {
		m.Close()
	}
	return nil
}

// Short reports whether the kernel refused something for want of file descriptors or memory.
func Short(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

// Explain returns the reason for which a map could not be made that the kernel supports: err, unless the library says in it that the kernel
// lacks a feature, then what the process is out of. If there is room again, the text says both.
func Explain(err error) error {
	if !errors.Is(err, ebpf.ErrNotSupported) {
		return err
	}
	if lacks := Lacks(); lacks != nil {
		return lacks
	}
	return fmt.Errorf("out of file descriptors or memory a moment ago, or the kernel lacks it: %w", err)
}
