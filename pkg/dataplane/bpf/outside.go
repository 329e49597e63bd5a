package bpf

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/dataplane"
)

// outside are the interfaces to which an agent with another prefix has attached programs: under the present prefix they are no workload
// interfaces. Either prefix may be the wrong one. Under the wrong one no pod is an endpoint. So interfaces that are no ready endpoint were only
// closed, and are opened. Where one of them is a ready endpoint, the present prefix is taken for the wrong one, and nothing is changed: policy of
// these pods would end, and the guard would know neither them nor those that come.
type outside struct {
	kernel *kernel
	prefix string
	free   bool // none of them is a ready endpoint, or was when the first plan could begin
	opened bool // the rest has no programs any more
}

// check returns an error while policy is enforced on some of them.
func (o *outside) check() error {
	if o.free {
		return nil
	}
	earlier, err := o.kernel.host.Earlier()
	if err != nil {
		return fmt.Errorf("find out whether an agent with another prefix enforces policy here: %w", err)
	}
	does, names := "may enforce", slices.Collect(maps.Values(earlier.OutsideOthers)) // the maps of another layout are not read
	for ifindex, name := range earlier.Outside {
		if o.kernel.isReady(ifindex) {
			does, names = "enforces", append(names, name)
		}
	}
	if o.free = len(names) == 0; o.free {
		return nil
	}
	return dataplane.OtherPrefix(o.prefix, does, names)
}

// open detaches the programs from those that are closed. Call it once the guard has the present prefix. Without it, only margay cleanup would detach
// them.
func (o *outside) open() error {
	if o.opened {
		return nil
	}
	earlier, err := o.kernel.host.Earlier()
	errs := []error{err}
	var names []string
	for ifindex, name := range earlier.Outside {
		if o.kernel.isReady(ifindex) {
			continue
		}
		if err := errors.Join(o.kernel.host.Detach(ifindex), o.kernel.maps.Drops.Forget(ifindex)); err != nil {
			errs = append(errs, fmt.Errorf("open interface %s, which an agent with another prefix has closed: %w", name, err))
			continue
		}
		names = append(names, name)
	}
	if len(names) > 0 {
		o.kernel.log.Warn("opened interfaces that an agent with another prefix had closed", "interfaces", dataplane.FewNames(names), "prefix", o.prefix)
	}
	err = errors.Join(errs...)
	o.opened = err == nil
	return err
}

// isReady reports whether the endpoint of an interface is in force.
func (k *kernel) isReady(ifindex uint32) bool {
	e, ok := k.endpoints.Get(ifindex)
	return ok && e.Flags&bpf.EPReady != 0
}
