package main

import (
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/dataplane"
)

// dataplaneConfig is what the settings mean to a dataplane.
func dataplaneConfig(c config.Config) dataplane.Config {
	d := dataplane.Config{
		BPFFS: c.BPFFS, Instance: c.Instance, Prefix: c.InterfacePrefix, MapEntries: c.MapSizes,
		Shortcut: !c.NoShortcut, StrictTCP: c.StrictMidFlow, Keep: c.KeepExisting, HostDrop: c.DropToHost,
		VXLANPort: c.VXLANPort, EventRate: c.EventRate, FlowQuota: c.FlowQuota, Interpret: c.Interpret,
		Timeouts: dataplane.Timeouts(c.Timeouts),
	}
	d.MarkSeen, d.MarkJudge, d.MarkOwn = c.Marks()
	if c.AllowEncap {
		d.VXLANPort = 0
	}
	return d
}
