package node

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"

	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/config"
)

// gone is the name of an interface that has gone. No interface has it.
const gone = "gone interface"

// readOwners notes whose addresses are.
func (l *replacedBPF) readOwners() error {
	numbers, err := l.from.Owners()
	if err != nil {
		return fmt.Errorf("read whose addresses are by the BPF dataplane: %w", err)
	}
	if numbers == nil {
		return nil
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("list interfaces, to know whose addresses are: %w", err)
	}
	names := map[uint32]string{}
	for _, i := range interfaces {
		names[uint32(i.Index)] = i.Name
	}
	l.owners = map[netip.Addr]string{}
	for a, number := range numbers {
		l.owners[a] = cmp.Or(names[number], gone)
	}
	return nil
}

// routedOwners returns whose addresses were by maps that cannot be read: an interface that programs are attached to has the addresses that the
// node routes to it. Other interfaces have come since. nil: agents have ended before they had attached programs to all, or to none.
func routedOwners(c config.Config) (map[netip.Addr]string, error) {
	dirs, err := linkDirs(c)
	if err != nil {
		return nil, fmt.Errorf("find programs of the BPF dataplane, to know whose addresses are: %w", err)
	}
	var owners map[netip.Addr]string
	judged := map[string]bool{}
	for _, dir := range dirs {
		numbers, err := attach.Judging(dir)
		if err != nil {
			return nil, fmt.Errorf("find interfaces with programs of the BPF dataplane, to know whose addresses are: %w", err)
		}
		if numbers == nil {
			continue
		}
		owners = map[netip.Addr]string{}
		for number := range numbers {
			judged[InterfaceNamed(int(number))] = true
		}
	}
	delete(judged, "") // it has gone since
	routes, err := attach.RoutesOut(attach.WatchOptions{}, judged)
	for _, r := range routes {
		if r.Prefix.IsSingleIP() && owners[r.Prefix.Addr()] == "" && judged[r.Interface] {
			owners[r.Prefix.Addr()] = r.Interface
		}
	}
	return owners, err
}
