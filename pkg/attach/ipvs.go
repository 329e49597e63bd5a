package attach

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
)

// IPVS is what there is of the kernel's virtual server (ip_vs) in a network namespace. It translates Service addresses in
// LOCAL_IN, after our programs have judged, where every other kube-proxy does so before.
type IPVS struct {
	KubeProxy bool // the interface kube-ipvs0 is there: kube-proxy works in IPVS mode, or has left it behind
	Services  int  // virtual services, kube-proxy's or somebody else's
}

// Translates reports whether packets may be translated by IPVS, now or as soon as kube-proxy writes a Service.
func (v IPVS) Translates() bool { return v.KubeProxy || v.Services > 0 }

// String is what was found, for people: "the interface kube-ipvs0 and 12 virtual services".
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
	found.Services = virtualServices(string(text))
	if err = errors.Join(linkErr, err); err != nil {
		return found, fmt.Errorf("look for IPVS: %w", err)
	}
	return found, nil
}

// virtualServices counts those in the text of /proc/net/ip_vs: each has a line that begins with its protocol, or FWM for
// a firewall mark. The lines of its real servers begin with an arrow, and the first three lines are a heading.
func virtualServices(text string) int {
	n := 0
	for line := range strings.Lines(text) {
		switch word, _, _ := strings.Cut(line, " "); word {
		case "TCP", "UDP", "SCTP", "FWM":
			n++
		}
	}
	return n
}
