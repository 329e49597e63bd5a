package attach

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

// IPVS is the state of the kernel's virtual server (ip_vs) in a network namespace. Its effect on packets is described in
// bpf/lib/netfilter.h.
type IPVS struct {
	KubeProxy bool // the interface kube-ipvs0 is there: kube-proxy works in IPVS mode, or has left it behind
	Services  int  // virtual services, kube-proxy's or somebody else's
	Direct    int  // their backends that get packets with the Service's address in them: by direct routing, or in a tunnel
	Conntrack bool // the kernel's conntrack follows translated flows (net.ipv4.vs.conntrack)
}

// Translates reports whether packets may be translated by IPVS, now or as soon as kube-proxy writes a Service.
func (v IPVS) Translates() bool { return v.KubeProxy || v.Services > 0 }

// String describes the findings for people: "the interface kube-ipvs0 and 12 virtual services".
func (v IPVS) String() string {
	var found []string
	if v.KubeProxy {
		found = append(found, "the interface "+kubeIPVS)
	}
	switch v.Services {
	case 0:
	case 1:
		found = append(found, "1 virtual service")
	default:
		found = append(found, fmt.Sprintf("%d virtual services", v.Services))
	}
	if len(found) == 0 {
		return "no IPVS"
	}
	return strings.Join(found, " and ")
}

// kubeIPVS is the dummy interface that kube-proxy in IPVS mode gives all Service addresses to.
const kubeIPVS = "kube-ipvs0"

// FindIPVS looks for IPVS in the network namespace of the calling thread. A kernel without ip_vs has none.
func FindIPVS() (IPVS, error) {
	var found IPVS
	var missing netlink.LinkNotFoundError
	_, linkErr := netlink.LinkByName(kubeIPVS)
	if found.KubeProxy = linkErr == nil; errors.As(linkErr, &missing) {
		linkErr = nil
	}
	// Of the thread: /proc/net is the network namespace of the process's first thread.
	text, err := os.ReadFile("/proc/thread-self/net/ip_vs")
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	found.Services, found.Direct = virtualServices(string(text))
	follows, sysctlErr := os.ReadFile("/proc/sys/net/ipv4/vs/conntrack")
	if found.Conntrack = strings.TrimSpace(string(follows)) == "1"; errors.Is(sysctlErr, fs.ErrNotExist) {
		sysctlErr = nil
	}
	if err = errors.Join(linkErr, err, sysctlErr); err != nil {
		return found, fmt.Errorf("look for IPVS: %w", err)
	}
	return found, nil
}

// virtualServices counts those in the text of /proc/net/ip_vs: each has a line that begins with its protocol, or FWM for
// a firewall mark. The lines of its backends begin with an arrow, and their third word is how packets get there; direct is
// how many are not by NAT (Masq) or the node itself (Local). The first three lines are a heading.
func virtualServices(text string) (services, direct int) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case slices.Contains([]string{"TCP", "UDP", "SCTP", "FWM"}, words[0]):
			services++
		case len(words) > 2 && words[0] == "->" && (words[2] == "Route" || words[2] == "Tunnel"):
			direct++
		}
	}
	return services, direct
}
