package dataplane

import (
	"fmt"
	"maps"
	"strings"
)

// Reconfigurable returns an error that names the fields in which to differs from from and which a dataplane cannot change while
// it is open: other maps, other interfaces, or marks that packets on their way carry.
func Reconfigurable(from, to Config) error {
	var fields []string
	for _, f := range []struct {
		name string
		same bool
	}{
		{"BPFFS", from.BPFFS == to.BPFFS},
		{"Instance", from.Instance == to.Instance},
		{"InterfacePrefix", from.InterfacePrefix == to.InterfacePrefix},
		{"MapSizes", maps.Equal(from.MapSizes, to.MapSizes)},
		{"MarkMask", from.MarkMask == to.MarkMask},
		{"IPTables", from.IPTables == to.IPTables},
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
