package agent

import (
	"maps"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/endpointstatus"
	"github.com/margay-project/margay/pkg/model"
)

// cniFiles has files for the CNI plugin say which endpoints are enforced. An endpoint that was enforced
// counts as enforced as long as it is on its interface: its last policy is enforced there even while a newer one cannot
// be. Until this agent enforces something, the files of an earlier one stay as long as their pods' interfaces are ready. A pod that is made
// again meanwhile has an interface that is not.
type cniFiles struct {
	files   *endpointstatus.Writer
	kept    map[string]bool             // interfaces whose files stay; nil: those of all
	written map[model.EndpointID]uint32 // interfaces of the endpoints that have a file
}

// Observe implements observer.
func (c *cniFiles) Observe(o Outcome) {
	if !o.Status.InSync {
		c.keep(o.Inherited)
		return
	}
	if o.Apply == nil {
		return
	}
	written := make(map[model.EndpointID]uint32, len(c.written))
	var enforced []endpointstatus.Endpoint
	for _, e := range o.States {
		if e.Condition == dataplane.Enforced || e.Ifindex != 0 && c.written[e.ID] == e.Ifindex {
			written[e.ID] = e.Ifindex
			enforced = append(enforced, endpointstatus.Endpoint{ID: e.ID, Iface: e.Iface, Addrs: e.Addrs})
		}
	}
	c.written = written
	c.files.Want(enforced)
}

// keep removes files of interfaces that are not ready; nil: it is not known which are.
func (c *cniFiles) keep(ready map[string]bool) {
	if ready == nil || c.kept != nil && maps.Equal(c.kept, ready) {
		return
	}
	c.kept = ready
	c.files.Keep(ready)
}
