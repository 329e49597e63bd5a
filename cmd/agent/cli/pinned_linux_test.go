package cli

import (
	"bytes"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/inspect"
)

// TestInterfacesOfAnotherNamespaceAreNotNamed has tools run where the number of the pod's interface is another's.
func TestInterfacesOfAnotherNamespaceAreNotNamed(t *testing.T) {
	n := newNode(t)
	n.start()
	n.wantReach(81, false) // makes a drop
	ifindex := 0
	for _, row := range decode[[]inspect.EndpointRow](t, n.want(0, nil, "show", "endpoints", "-o", "json")) {
		if row.Name == "db" {
			ifindex = int(row.Ifindex)
		}
	}
	n.stop(syscall.SIGTERM)
	const impostor = "impostor"
	var drops, cleanup bytes.Buffer
	testutil.NetNS(t).Do(t, func() {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.Index = impostor, ifindex
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "peer"}); err != nil {
			t.Error(err)
		}
		flags := []string{"--bpffs", n.bpffs, "--socket", n.socket, "--instance", "live"}
		execute(t.Context(), append([]string{"show", "drops"}, flags...), &drops, &drops)
		execute(t.Context(), append([]string{"cleanup"}, flags...), &cleanup, &cleanup)
	})
	if out := drops.String(); strings.Contains(out, impostor) || !strings.Contains(out, "ifindex") {
		t.Errorf("show drops, where the interface's number is another's:\n%s", out)
	}
	if out := cleanup.String(); strings.Contains(out, impostor) || !strings.Contains(out, "tcx/ingress of interface ") {
		t.Errorf("cleanup, where the interface's number is another's:\n%s", out)
	}
}
