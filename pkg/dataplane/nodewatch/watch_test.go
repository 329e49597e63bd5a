package nodewatch

import (
	"log/slog"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/margay-project/margay/internal/testutil"
)

// TestAnInterfaceThatGoesWhileTheWatchOpensIsForgotten: else the node would have an interface without a pod for ever.
func TestAnInterfaceThatGoesWhileTheWatchOpensIsForgotten(t *testing.T) {
	testutil.Privileged(t)
	for range 40 {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "mgy-watched"}, PeerName: "mgy-watchedp"}
		if err := netlink.LinkAdd(link); err != nil {
			t.Fatal(err)
		}
		removed := make(chan error)
		go func() { removed <- netlink.LinkDel(link) }()
		w, err := Open("mgy-watched", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := <-removed; err != nil {
			t.Fatal(err)
		}
		for deadline := time.After(10 * time.Second); len(w.Interfaces()) > 0; {
			select {
			case <-w.Wake():
			case <-deadline:
				w.Close()
				t.Fatalf("interfaces that have gone are known: %v", w.Interfaces())
			}
		}
		w.Close()
	}
}
