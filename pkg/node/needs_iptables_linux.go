package node

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/ipsets"
	xtables "github.com/margay-project/margay/pkg/iptables"
)

// iptablesParts are the parts of the kernel that the iptables dataplane writes to.
type iptablesParts struct {
	tools  *xtables.Tools
	unused error // why the backend that is preferred is not used; nil: it is, or is not installed
	sets   *ipsets.Conn
	lists  *ipsets.Conn // reads large sets beside sets
	flows  *conntrack.Conn
}

// openIPTablesParts opens them and checks each requirement of the iptables dataplane on this node. It alters nothing.
func openIPTablesParts(ctx context.Context, backend string, h *held) (*iptablesParts, []Result) {
	p := &iptablesParts{}
	var checks []Result
	add := func(name string, try func() (detail string, err error)) {
		detail, err := try()
		if err != nil {
			detail = oneLine(err)
		}
		checks = append(checks, Result{Name: name, OK: err == nil, Detail: detail})
	}
	add("capabilities", iptablesCapabilities)
	add("iptables", func() (string, error) {
		var err error
		if p.tools, p.unused, err = findIPTables(ctx, backend); err != nil {
			return "", err
		}
		if p.unused != nil {
			return p.tools.Version + ", since the backend legacy does not work: " + oneLine(p.unused), nil
		}
		return p.tools.Version, nil
	})
	add("IP sets with marks", func() (string, error) {
		var err error
		if p.sets, err = ipsets.Open(); err != nil {
			return "", err
		}
		h.add(p.sets.Close)
		if p.lists, err = ipsets.Open(); err != nil {
			return "", err
		}
		h.add(p.lists.Close)
		return "", supportsSets(p.sets)
	})
	add("connection tracking", func() (string, error) {
		var err error
		if p.flows, err = conntrack.Open(); err != nil {
			return "", err
		}
		h.add(p.flows.Close)
		entries, limit, err := p.flows.Usage()
		return fmt.Sprintf("%d of at most %d connections", entries, limit), err
	})
	add("Services", noIPVS)
	return p, checks
}

func iptablesCapabilities() (string, error) {
	lacking, err := attach.Lacking("CAP_NET_ADMIN", "CAP_NET_RAW")
	if err == nil && len(lacking) > 0 {
		err = fmt.Errorf("this process does not have %s: run it as root, or add what is missing to securityContext.capabilities of its container",
			strings.Join(lacking, " and "))
	}
	return "", err
}

// supportsSets asks for the types of sets that the dataplane has.
func supportsSets(sets *ipsets.Conn) error {
	var errs []error
	for _, family := range []ipsets.Family{ipsets.IPv4, ipsets.IPv6} {
		errs = append(errs, sets.Supports(ipsets.NetInterface, family), sets.Supports(ipsets.Net, family))
	}
	return errors.Join(errs...)
}

// noIPVS fails where kube-proxy works, or has worked, in IPVS mode.
func noIPVS() (string, error) {
	found, err := attach.FindIPVS()
	if found.KubeProxy {
		return "", errors.New("the iptables dataplane cannot judge what IPVS translates, and this node has the interface kube-ipvs0: " +
			"run kube-proxy in another mode, or use --dataplane bpf")
	}
	if err != nil {
		return "some could not be read: " + oneLine(err), nil
	}
	return "not translated by IPVS", nil
}

// missing names the failed checks, in one line; nil: there are none.
func missing(checks []Result) error {
	var lacks []string
	for _, c := range checks {
		if !c.OK {
			lacks = append(lacks, c.Name+": "+c.Detail)
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	return fmt.Errorf("the iptables dataplane cannot run here: %s", strings.Join(lacks, "; "))
}
