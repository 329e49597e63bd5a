package config

import (
	"fmt"
	"slices"
	"strings"
)

// interfacePrefix is the name of the setting.
const interfacePrefix = "interface-prefix"

// closesUplink returns why a prefix of workload interfaces cannot be used on a node with these uplinks; nil: it can. An interface with the
// prefix that is no pod's is closed.
func closesUplink(prefix string, uplinks []string) error {
	named := slices.DeleteFunc(slices.Clone(uplinks), func(name string) bool { return !strings.HasPrefix(name, prefix) })
	if len(named) == 0 {
		return nil
	}
	return fmt.Errorf("also names %s, by which the node's default route leads: it would be closed", strings.Join(named, " and "))
}
