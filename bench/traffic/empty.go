//go:build linux

package traffic

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/margay-project/margay/bpf"
)

// emptyConfig has programs that do nothing on the four hooks the packets of a flow pass: the least any enforcement by
// TC programs can cost.
func emptyConfig(name string) config {
	var close []func() error
	return config{
		name: name, share: 1,
		setUp: func(_ context.Context, s *site) error {
			spec, err := bpf.LoadMargay()
			if err != nil {
				return err
			}
			program, err := ebpf.NewProgram(spec.Programs[bpf.MargayProgEmpty])
			if err != nil {
				return fmt.Errorf("load program %s: %w", bpf.MargayProgEmpty, err)
			}
			close = append(close, program.Close)
			return s.seats[0].node.Do(func() error {
				for _, ifindex := range []int{s.client.IfIndex(), s.server.IfIndex()} {
					for _, hook := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
						l, err := link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: program, Attach: hook})
						if err != nil {
							return fmt.Errorf("attach to interface %d: %w", ifindex, err)
						}
						close = append(close, l.Close)
					}
				}
				return nil
			})
		},
		tearDown: func(*site) error {
			var errs []error
			for _, c := range close {
				errs = append(errs, c())
			}
			close = nil // of all nodes
			return errors.Join(errs...)
		},
	}
}
