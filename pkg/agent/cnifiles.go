package agent

import (
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/endpointstatus"
	"github.com/margay-project/margay/pkg/model"
)

// cniFiles has files for the CNI plugin say which endpoints are enforced, once anything is. An endpoint that was enforced
// counts as enforced as long as it is on its interface: its last policy is enforced there even while a newer one cannot
// be.
type cniFiles struct {
	files   *endpointstatus.Writer
	written map[model.EndpointID]uint32 // interfaces of the endpoints that have a file
}

// Observe implements observer.
func (c *cniFiles) Observe(o Outcome) {
	if o.Apply == nil || !o.Status.InSync {
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
