package attach

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// needed are the capabilities of BPF mode.
var needed = []string{
	"CAP_BPF",       // maps and programs
	"CAP_NET_ADMIN", // programs for packets, and where they are attached
	"CAP_PERFMON",   // programs of netfilter hooks follow pointers of the kernel
}

// capabilities are the numbers of those that either mode needs. Two are part of CAP_SYS_ADMIN, too, as they were once.
var capabilities = map[string]struct {
	number  uint
	inAdmin bool
}{
	"CAP_BPF": {unix.CAP_BPF, true}, "CAP_NET_ADMIN": {unix.CAP_NET_ADMIN, false}, "CAP_NET_RAW": {unix.CAP_NET_RAW, false},
	"CAP_PERFMON": {unix.CAP_PERFMON, true},
}

// LackingCapabilities are the capabilities that BPF mode needs and this process does not have in effect, such as
// CAP_BPF. Having them is no promise: in a user namespace of its own a process has all, and may do little.
func LackingCapabilities() ([]string, error) { return Lacking(needed...) }

// Lacking are those of the named capabilities that this process does not have in effect. A capability that is not known here is
// lacking.
func Lacking(names ...string) ([]string, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return nil, fmt.Errorf("ask for the capabilities of this process: %w", err)
	}
	has := func(capability uint) bool { return sets[capability/32].Effective>>(capability%32)&1 != 0 }
	var lacking []string
	for _, name := range names {
		c, known := capabilities[name]
		if !known || !has(c.number) && !(c.inAdmin && has(unix.CAP_SYS_ADMIN)) {
			lacking = append(lacking, name)
		}
	}
	return lacking, nil
}
