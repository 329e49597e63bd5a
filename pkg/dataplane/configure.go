package dataplane

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/margay-project/margay/pkg/bpfmaps"
)

// fixed returns an error that names the fields in which to differs from from and which a dataplane cannot change while
// it is open: other maps, other interfaces, or marks that packets on their way carry.
func fixed(from, to Config) error {
	var fields []string
	for _, f := range []struct {
		name string
		same bool
	}{
		{"BPFFS", from.BPFFS == to.BPFFS},
		{"Instance", from.Instance == to.Instance},
		{"Prefix", from.Prefix == to.Prefix},
		{"MapEntries", maps.Equal(from.MapEntries, to.MapEntries)},
		{"MarkSeen", from.MarkSeen == to.MarkSeen},
		{"MarkJudge", from.MarkJudge == to.MarkJudge},
		{"MarkOwn", from.MarkOwn == to.MarkOwn},
	} {
		if !f.same {
			fields = append(fields, f.name)
		}
	}
	if len(fields) == 0 {
		return nil
	}
	return fmt.Errorf("configure dataplane: %s cannot be changed without a restart", strings.Join(fields, ", "))
}

// Configure implements Dataplane.
func (d *BPF) Configure(c Config) error {
	if err := fixed(d.config, c); err != nil {
		return err
	}
	d.next = &c
	return nil
}

// reconfigure loads the programs anew if there is a configuration to go on with. The links have the old ones until the
// endpoints and the guard are ensured again, which the first Apply after a Reopen does.
func (d *BPF) reconfigure() error {
	if d.next == nil {
		return nil
	}
	next := *d.next
	d.next = nil
	programs, err := d.kernel.maps.LoadPrograms(next.bpf())
	if err != nil {
		return fmt.Errorf("configuration stays what it was: %w", err)
	}
	if err := d.use(programs); err != nil {
		return fmt.Errorf("configuration stays what it was: %w", errors.Join(err, programs.Close()))
	}
	d.config = next
	return nil
}

// use makes programs those to attach and to run.
func (d *BPF) use(programs *bpfmaps.Programs) error {
	if err := d.sweeps.use(d.kernel.maps, programs); err != nil {
		return err
	}
	if err := d.kernel.host.Use(programs, d.kernel.maps.LinkDir(), d.kernel.olderLinks()); err != nil {
		return errors.Join(err, d.sweeps.use(d.kernel.maps, d.programs))
	}
	old := d.programs
	d.programs = programs
	if old == nil {
		return nil
	}
	return old.Close()
}
