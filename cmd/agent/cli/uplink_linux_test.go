package cli

import (
	"bytes"
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/margay-project/margay/internal/testutil"
)

// An agent would close the node's uplink if the prefix of pods' interfaces named it, too.
func TestAPrefixThatNamesTheUplinkOfTheNodeIsRefused(t *testing.T) {
	testutil.Privileged(t)
	t.Setenv("MARGAY_INTERFACE_PREFIX", "upl")
	dir := t.TempDir()
	const want = "margay: interface-prefix \"upl\" (environment variable MARGAY_INTERFACE_PREFIX) also names uplink0, by which the node's default route leads: " +
		"it would be closed\n"
	testutil.NetNS(t).Do(t, func() {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "uplink0"
		veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "peer"}
		if err := netlink.LinkAdd(veth); err != nil {
			t.Error(err)
			return
		}
		if err := netlink.LinkSetUp(veth); err != nil {
			t.Error(err)
			return
		}
		everything := &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: veth.Attrs().Index, Dst: everything, Scope: netlink.SCOPE_LINK}); err != nil {
			t.Error(err)
			return
		}
		for _, args := range [][]string{{"check"}, {"run", "--dataplane", "record", "--dir", dir, "--socket", filepath.Join(dir, "socket")}} {
			var out bytes.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // for an agent that starts
			code := execute(ctx, args, &out, &out)
			if cancel(); code != 2 || out.String() != want {
				t.Errorf("%q: exit status %d, %s, want %s", args, code, &out, want)
			}
		}
	})
}
