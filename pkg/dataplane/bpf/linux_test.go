package bpf

import (
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/margay-project/margay/internal/testutil"
)

// TestAnInterfaceMadeAnewUnderTheSameNameAndNumberIsTouched: nothing else would tell that what was attached is gone.
func TestAnInterfaceMadeAnewUnderTheSameNameAndNumberIsTouched(t *testing.T) {
	testutil.Privileged(t)
	testutil.NetNS(t).Enter(t)
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "cali1", Index: 77}, PeerName: "peer1"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	host, err := OpenLinux("cali", slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	}()
	touched := func() bool { return slices.Contains(host.Touched(), 77) && host.Interfaces()["cali1"] == 77 }
	testutil.WaitFor(t, time.Minute, "the interface is seen", touched)
	if touched() {
		t.Error("touched twice, although nothing has happened")
	}
	if err := netlink.LinkDel(veth); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	testutil.WaitFor(t, time.Minute, "the new interface is seen", touched)
	if err := netlink.LinkDel(veth); err != nil {
		t.Fatal(err)
	}
	testutil.WaitFor(t, time.Minute, "that it is gone is seen", func() bool { return len(host.Interfaces()) == 0 })
}
