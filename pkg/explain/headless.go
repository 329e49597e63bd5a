package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/model"
)

// headless are the backends of a Service without an address of its own. Nothing is translated on the way to them: clients get the backends'
// addresses from DNS and choose a port. By DNS they may know the number that a port's name has at a backend (SRV records). A
// number is that of the backends' port, whether or not the Service has it, and its targetPort means nothing.
func (l lookup) headless(key model.ServiceKey) (found, error) {
	f := found{text: "Service " + key.String(),
		note: "Service " + key.String() + " is headless: its name in DNS stands for the addresses of its backends, and no port is translated"}
	var found backendList
	list := l.slices(key, &found)
	var ports []model.NamedPort // of the backends
	for _, slice := range list {
		ports = append(ports, slice.Ports...)
	}
	slices.SortFunc(ports, func(a, b model.NamedPort) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
	})
	ports = slices.Compact(ports)
	asked := l.askedFor(ports)
	byNumber := l.r.Port != 0 || l.r.Protocol != 0 && !model.HasPorts(l.r.Protocol)
	if l.r.PortName != "" && len(asked) == 0 {
		return f, fmt.Errorf("the Service %s has no port %q%s; %s", key, l.r.PortName, ofProtocol(l.r.Protocol), portList(ports, "its backends name none"))
	}
	for _, slice := range list {
		of := l.askedFor(slice.Ports)
		if byNumber || len(asked) == 0 {
			of = []model.NamedPort{{Protocol: l.protocol(), Port: l.r.Port}}
		}
		for _, port := range of {
			found.add(slice.Addrs, port, func(netip.Addr) bool { return true })
		}
	}
	l.addBackends(&f, key, &found)
	if len(f.parties) == 0 {
		return f, l.noBackends(key, "")
	}
	if l.r.Port != 0 && len(asked) == 0 && len(ports) > 0 {
		f.note += "; " + portList(ports, "")
	}
	slices.SortFunc(f.parties, compareParties)
	return f, nil
}

// protocol is the one that is asked for: if a port is, and the request does not say, TCP.
func (l lookup) protocol() uint8 {
	if l.r.Protocol == 0 && l.r.Port != 0 {
		return model.ProtoTCP
	}
	return l.r.Protocol
}
