package bpf

import (
	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/model"
)

// Maps are the dataplane's maps, for readers of the entries that the programs write. They belong to d.
func (d *BPF) Maps() *bpfmaps.Maps { return d.kernel.maps }

// Programs are the programs in force, for test-runs. They belong to d.
func (d *BPF) Programs() *bpfmaps.Programs { return d.programs }

// Kernel is the kernel's entry of an endpoint; not ok if it has none.
func (d *BPF) Kernel(id model.EndpointID) (bpf.Endpoint, bool) {
	ep := d.state.endpoints.roster.bound[id]
	if ep == nil || ep.ifindex == 0 {
		return bpf.Endpoint{}, false
	}
	return d.kernel.endpoints.Get(ep.ifindex)
}

// SetKernel puts an entry into the kernel that no plan knows: for test-runs, whose packets come from an interface of
// their own.
func (d *BPF) SetKernel(e bpf.Endpoint) error { return d.kernel.endpoints.Set(e) }
