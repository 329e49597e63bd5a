package agent

import (
	"slices"

	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/dataplane"
)

// DataplaneConfig is the part of the configuration that a dataplane is told.
func DataplaneConfig(c config.Config) dataplane.Config {
	d := dataplane.Config{
		BPFFS: c.BPFFS, Instance: c.Instance, Prefix: c.InterfacePrefix, MapEntries: c.MapSizes,
		Shortcut: !c.NoShortcut, StrictTCP: c.StrictMidFlow, Keep: c.KeepExisting, HostDrop: c.DropToHost,
		DropTunnels: !c.AllowEncap, MidFlowGrace: c.MidFlowGrace, EventRate: c.EventRate, FlowQuota: c.FlowQuota, Interpret: c.Interpret,
		Timeouts: dataplane.Timeouts(c.Timeouts),
	}
	for _, port := range append([]uint16{c.VXLANPort}, c.TunnelPorts...) {
		if port != 0 && !slices.Contains(d.TunnelPorts, port) {
			d.TunnelPorts = append(d.TunnelPorts, port)
		}
	}
	d.MarkSeen, d.MarkJudge, d.MarkOwn = c.Marks()
	return d
}
