package endpointstatus

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/model"
)

// Endpoint is a local endpoint whose policy is enforced in both directions.
type Endpoint struct {
	ID    model.EndpointID
	Iface string       // on the host
	MAC   string       // as written by net.HardwareAddr; empty if not known
	Addrs []netip.Addr // of both families
}

// The parts of a file's name other than the pod, as Calico's CNI plugin has them for every pod of a Kubernetes cluster.
const (
	orchestrator = "k8s"
	interfaceIn  = "eth0"
	separator    = " " // reserved by the escaping, so no part has it
)

// FileName is the name of the endpoint's file: "k8s shop%2Fweb eth0".
func FileName(id model.EndpointID) string {
	return strings.Join([]string{orchestrator, url.PathEscape(id.Namespace + "/" + id.Name), interfaceIn}, separator)
}

// isFileName reports whether a file of the name is about a pod, and so is ours to remove. Whatever else is in the
// directory is left alone.
func isFileName(name string) bool {
	parts := strings.Split(name, separator)
	if len(parts) != 3 || parts[0] != orchestrator || parts[2] != interfaceIn {
		return false
	}
	workload, err := url.PathUnescape(parts[1])
	if err != nil {
		return false
	}
	namespace, pod, _ := strings.Cut(workload, "/")
	return FileName(model.WorkloadID(namespace, pod)) == name
}

// body is the content of a file. Empty fields are left out, as Calico's readers expect.
type body struct {
	IfaceName string   `json:"ifaceName,omitempty"`
	MAC       string   `json:"mac,omitempty"`
	IPv4Nets  []string `json:"ipv4Nets,omitempty"` // as prefixes of full length
	IPv6Nets  []string `json:"ipv6Nets,omitempty"`
	// The name of a BGP peer, bgpPeerName, is never there: peering with pods is Felix's business.
}

// files returns what shall be in the directory, by name.
func files(endpoints []Endpoint) (map[string]string, error) {
	all := make(map[string]string, len(endpoints))
	for _, e := range endpoints {
		b := body{IfaceName: e.Iface, MAC: e.MAC}
		for _, a := range e.Addrs {
			net := netip.PrefixFrom(a, a.BitLen()).String()
			if a.Is4() {
				b.IPv4Nets = append(b.IPv4Nets, net)
			} else {
				b.IPv6Nets = append(b.IPv6Nets, net)
			}
		}
		text, err := json.Marshal(b)
		if err != nil {
			return nil, fmt.Errorf("write the status of endpoint %s as JSON: %w", e.ID, err)
		}
		all[FileName(e.ID)] = string(text)
	}
	return all, nil
}

// interfaceOf is the interface that a file names; empty if it names none.
func interfaceOf(text string) string {
	var b body
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		return ""
	}
	return b.IfaceName
}

// difference returns the names to write and those to remove, each in order, to get from the present files to the wanted
// ones.
func difference(wanted, there map[string]string) (write, remove []string) {
	for name, text := range wanted {
		if old, ok := there[name]; !ok || old != text {
			write = append(write, name)
		}
	}
	for name := range there {
		if _, ok := wanted[name]; !ok {
			remove = append(remove, name)
		}
	}
	slices.Sort(write)
	slices.Sort(remove)
	return write, remove
}
