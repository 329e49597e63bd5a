package calc

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/model"
)

// portList is the ports of an EndpointSlice, sorted, each once: protocol and number in network byte order, 3 bytes each. Protocols
// without ports are left out.
type portList string

func portListOf(ports []model.NamedPort) portList {
	keys := make([]portKey, 0, len(ports))
	for _, p := range ports {
		if model.HasPorts(p.Protocol) {
			keys = append(keys, keyOf(p))
		}
	}
	slices.SortFunc(keys, portKey.compare)
	keys = slices.Compact(keys)
	text := make([]byte, 0, 3*len(keys))
	for _, k := range keys {
		text = append(text, k.protocol, byte(k.port>>8), byte(k.port))
	}
	return portList(text)
}

func (l portList) len() int { return len(l) / 3 }

// all yields protocols and ports, in order.
func (l portList) all() iter.Seq2[uint8, uint16] {
	return func(yield func(uint8, uint16) bool) {
		for i := 0; i+3 <= len(l); i += 3 {
			if !yield(l[i], uint16(l[i+1])<<8|uint16(l[i+2])) {
				return
			}
		}
	}
}

// String returns "port 80/tcp" or "ports 80/tcp, 443/tcp" with as many ports as a line has room for.
func (l portList) String() string {
	const most = 6
	var parts []string
	for protocol, port := range l.all() {
		if len(parts) == most {
			parts = append(parts, fmt.Sprintf("%d more", l.len()-most))
			break
		}
		parts = append(parts, fmt.Sprintf("%d/%s", port, protocolName(protocol)))
	}
	if len(parts) == 1 {
		return "port " + parts[0]
	}
	return "ports " + strings.Join(parts, ", ")
}

// comparePorts orders the ports of rules.
func comparePorts(a, b model.PortSet) int {
	return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Set, b.Set))
}
