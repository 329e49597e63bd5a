package cli

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/margay-project/margay/internal/lab"
	"github.com/margay-project/margay/pkg/attach"
)

func TestIPVSIsSaidInOneLine(t *testing.T) {
	if got := ipvsFindings(attach.IPVS{}); got != nil {
		t.Errorf("without IPVS: %q", got)
	}
	got := ipvsFindings(attach.IPVS{KubeProxy: true, Services: 12})
	if len(got) != 1 || strings.Contains(got[0], "\n") || !strings.Contains(got[0], "kube-ipvs0 and 12 virtual services") {
		t.Errorf("with IPVS: %q", got)
	}
}

// TestIPVSOnTheNodeIsAProblem has an interface that is named as kube-proxy's; the kernel need not have ip_vs.
func TestIPVSOnTheNodeIsAProblem(t *testing.T) {
	n := newNode(t)
	err := n.machine.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "kube-ipvs0"
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "kube-peer"})
	})
	if err != nil {
		t.Fatal(err)
	}
	n.want(1, []string{"PROBLEM", "IPVS translates Service addresses here (the interface kube-ipvs0)"}, "check")
	n.launch()
	n.ready(func() bool {
		out, code := n.cli("show", "problems")
		return code == 0 && strings.Contains(out, "Node node") && strings.Contains(out, "IPVS translates Service addresses here")
	}, "the agent to say that IPVS is there")
	n.unready("node")
	if at := netip.AddrPortFrom(n.db.Addr4(), 80); n.web.DialTCP(at, answered).Outcome != lab.Connected {
		t.Error("policy is not enforced while the agent is not ready")
	}
}
