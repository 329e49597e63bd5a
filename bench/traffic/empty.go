//go:build linux

package traffic

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/lab"
)

// emptyConfig has programs that do nothing on the TCX hooks of the pods, and with forward at FORWARD of each node, too: the least that
// any enforcement by programs on these hooks can cost.
func emptyConfig(name string, forward bool) config {
	var e empty
	return config{
		name: name, share: 1,
		setUp: func(_ context.Context, s *site) error {
			for i, pod := range []*lab.Pod{s.client, s.server} {
				if err := s.seats[i].node.Do(func() error { return e.attachTCX(pod.IfIndex()) }); err != nil {
					return err
				}
			}
			if !forward {
				return nil
			}
			return s.each(func(at *seat) error { return at.node.Do(e.attachForward) })
		},
		tearDown: func(*site) error { return e.close() }, // of all sites
	}
}

// empty are programs that do nothing, and their links.
type empty struct{ opened []func() error }

func (e *empty) close() error {
	var errs []error
	for _, c := range e.opened {
		errs = append(errs, c())
	}
	e.opened = nil
	return errors.Join(errs...)
}

// attachTCX attaches a program to both hooks of an interface in the calling thread's network namespace.
func (e *empty) attachTCX(ifindex int) error {
	spec, err := bpf.LoadMargay()
	if err != nil {
		return err
	}
	program, err := e.load(spec.Programs[bpf.MargayProgEmpty])
	if err != nil {
		return err
	}
	for _, hook := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
		l, err := link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: program, Attach: hook})
		if err != nil {
			return fmt.Errorf("attach to interface %d: %w", ifindex, err)
		}
		e.opened = append(e.opened, l.Close)
	}
	return nil
}

// attachForward attaches a program that accepts to FORWARD of IPv4 in the calling thread's network namespace.
func (e *empty) attachForward() error {
	const accept, forward, behindFilter = 1, 2, 100
	program, err := e.load(&ebpf.ProgramSpec{Name: "empty", Type: ebpf.Netfilter, AttachType: ebpf.AttachNetfilter, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, accept), asm.Return()}})
	if err != nil {
		return err
	}
	l, err := link.AttachNetfilter(link.NetfilterOptions{Program: program, ProtocolFamily: unix.NFPROTO_IPV4, Hook: forward, Priority: behindFilter})
	if err != nil {
		return fmt.Errorf("attach to FORWARD: %w", err)
	}
	e.opened = append(e.opened, l.Close)
	return nil
}

func (e *empty) load(spec *ebpf.ProgramSpec) (*ebpf.Program, error) {
	program, err := ebpf.NewProgram(spec)
	if err != nil {
		return nil, fmt.Errorf("load a program that does nothing: %w", err)
	}
	e.opened = append(e.opened, program.Close)
	return program, nil
}
