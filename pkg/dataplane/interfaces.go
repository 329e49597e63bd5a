package dataplane

import "maps"

// Interfaces implements Dataplane.
func (d *BPF) Interfaces() map[string]uint32 {
	if !d.ready {
		return nil
	}
	return maps.Clone(d.interfaces)
}
