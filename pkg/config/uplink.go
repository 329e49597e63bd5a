package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// interfacePrefix is the name of the setting.
const interfacePrefix = "interface-prefix"

// ownInterfaces are the names of interfaces of the node that are no pod's, whatever they are called.
type ownInterfaces struct {
	uplinks   []string // by which its default routes lead
	loopbacks []string // by which its processes reach each other
}

// closes returns why a prefix of workload interfaces cannot be used on a node with these interfaces; nil: it can. An interface with the
// prefix that is no pod's is closed.
func (o ownInterfaces) closes(prefix string) error {
	var errs []string
	if named := withPrefix(o.uplinks, prefix); named != "" {
		errs = append(errs, fmt.Sprintf("also names %s, by which the node's default route leads: it would be closed", named))
	}
	if named := withPrefix(o.loopbacks, prefix); named != "" {
		errs = append(errs, fmt.Sprintf("also names %s, the node's loopback interface: it would be closed", named))
	}
	if len(errs) == 0 {
		return nil
	}
	return errors.New(strings.Join(errs, "; "))
}

// withPrefix lists the names that begin with prefix; empty: there is none.
func withPrefix(names []string, prefix string) string {
	named := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasPrefix(name, prefix) })
	return strings.Join(named, " and ")
}
