package lab_test

import (
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/margay-project/margay/internal/labtest"
	"github.com/margay-project/margay/internal/testutil"
)

// Pods made and removed at the same time do not get into each other's way, and names are free again at once.
func TestManyPodsComeAndGoAtOnce(t *testing.T) {
	testutil.Privileged(t)
	l := labtest.New(t)
	n := labtest.Node(t, l, "n")
	bystander := labtest.Pod(t, n, "stays")
	for range 2 {
		var g errgroup.Group
		for i := range 40 {
			g.Go(func() error {
				p, err := n.AddPod("many", fmt.Sprint(i))
				if err != nil {
					return err
				}
				if _, err := n.AddPod("many", fmt.Sprint(i)); err == nil {
					return fmt.Errorf("pod %s was made twice", p.Name())
				}
				return n.DelPod(p)
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	links, err := n.Netlink().LinkList()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, link := range links {
		names = append(names, link.Attrs().Name)
	}
	if len(links) != 3 {
		t.Errorf("interfaces of the node: %q, want lo, eth0 and %s", names, bystander.Iface())
	}
	if got := n.Pod("many", "1"); got != nil {
		t.Errorf("pod %s is still known", got.Name())
	}
}
