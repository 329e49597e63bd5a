package lab

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab/ns"
)

func TestLinksSayWhichInterfaceOfWhichHost(t *testing.T) {
	l := openTestLinks(t)
	_, err := l.up("eth7")
	if err == nil || !strings.Contains(err.Error(), "interface eth7 of shop/web") {
		t.Errorf("up: %v", err)
	}
	if err := l.ready("eth7"); err == nil || !strings.Contains(err.Error(), "interface eth7 of shop/web") {
		t.Errorf("ready: %v", err)
	}
}

func TestAnAddressMayBeAddedTwiceAndARouteMayNot(t *testing.T) {
	l := openTestLinks(t)
	lo, err := l.up("lo")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.addAddr(lo, netip.MustParsePrefix("10.9.0.1/32")); err != nil {
			t.Fatal(err)
		}
	}
	to := netip.MustParsePrefix("10.9.1.0/24")
	if err := l.addRoute(lo, to, netip.Addr{}); err != nil {
		t.Fatal(err)
	}
	if err := l.addRoute(lo, to, netip.Addr{}); err == nil || !strings.Contains(err.Error(), "10.9.1.0/24 via lo in shop/web") {
		t.Errorf("the same route again: %v", err)
	}
}

func openTestLinks(t *testing.T) *links {
	t.Helper()
	testutil.Privileged(t)
	space, err := ns.Create(fmt.Sprintf("mgy-links-%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	l, err := openLinks("shop/web", space)
	if err != nil {
		t.Fatal(err, space.Close())
	}
	t.Cleanup(func() {
		l.handle.Close()
		if err := space.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}
