package bpf

import (
	"errors"
	"fmt"

	"github.com/margay-project/margay/pkg/dataplane"
)

// Configure implements Dataplane.
func (d *BPF) Configure(c dataplane.Config) error {
	if err := dataplane.Reconfigurable(d.config, c); err != nil {
		return err
	}
	d.next = &c
	return nil
}

// Reopen implements Dataplane.
func (d *BPF) Reopen() error {
	d.state.classes.wait()
	if err := errors.Join(d.reconfigure(), d.state.close(), d.kernel.endpoints.Reload()); err != nil {
		return fmt.Errorf("reopen: %w", err)
	}
	next, err := newState(d.config, d.kernel)
	if err != nil {
		return fmt.Errorf("reopen: %w", err)
	}
	d.state = next
	return nil
}

// reconfigure loads the programs again if there is a new configuration. The links have the old ones until the
// endpoints and the guard are ensured again, which the first Apply after a Reopen does.
func (d *BPF) reconfigure() error {
	if d.next == nil {
		return nil
	}
	next := *d.next
	d.next = nil
	programs, err := d.kernel.maps.LoadPrograms(programConfig(next))
	if err != nil {
		return fmt.Errorf("configuration stays what it was: %w", err)
	}
	if err := d.kernel.host.Use(programs, d.kernel.maps.LinkDir(), d.kernel.olderLinks()); err != nil {
		return fmt.Errorf("configuration stays what it was: %w", errors.Join(err, programs.Close()))
	}
	old := d.programs
	d.programs, d.config = programs, next
	d.kernel.relimitGrace() // the period may be a shorter one now
	d.sweeps.replace(programs)
	return old.Close()
}
