package bpf

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
)

// heirsPatience bounds how long tests wait for what happens beside Apply.
const heirsPatience = 30 * time.Second

// slowTable makes readings of the kernel's table of connections last until the test lets them end. Each is delivered when it begins, with its
// addresses; what is sent for it ends it.
type slowTable struct {
	begun chan []netip.Addr
	end   chan error
}

func (h *FakeHost) slowTable() slowTable {
	s := slowTable{make(chan []netip.Addr), make(chan error)}
	h.Ending = func(of map[netip.Addr]bool) error {
		s.begun <- slices.SortedFunc(maps.Keys(of), netip.Addr.Compare)
		return <-s.end
	}
	return s
}

// begins waits until a reading for these addresses begins.
func (s slowTable) begins(t *testing.T, addrs ...string) {
	t.Helper()
	var want []netip.Addr
	for _, a := range addrs {
		want = append(want, netip.MustParseAddr(a))
	}
	select {
	case got := <-s.begun:
		if !slices.Equal(got, want) {
			t.Errorf("connections of %v are ended, want %v", got, want)
		}
	case <-time.After(heirsPatience):
		t.Fatal("the table is not read")
	}
}

// applyUntil calls Apply as often as the host wakes, until what holds.
func applyUntil(t *testing.T, dp *BPF, what string, holds func(err error) bool) {
	t.Helper()
	for end := time.After(heirsPatience); ; {
		if holds(dp.Apply(t.Context(), model.Changes{})) {
			return
		}
		select {
		case <-dp.Wake():
		case <-end:
			t.Fatalf("%s: not after %v", what, heirsPatience)
		}
	}
}

func (d *BPF) has(ifindex uint32) bool {
	_, ok := d.kernel.endpoints.Get(ifindex)
	return ok
}

// An endpoint with an address of one that has gone is closed until that one's connections are removed from the kernel's table, and no other
// endpoint waits for that. An attempt that fails opens nothing.
func TestAnEndpointIsClosedWhileItsAddressHasConnectionsOfAnother(t *testing.T) {
	testutil.Privileged(t)
	dp := openSmall(t, testutil.BPFFS(t), nil)
	defer mustClose(t, dp)
	s := dp.kernel.host.(*FakeHost).slowTable()
	graph := calc.New("n")
	graph.Apply(append(restartStages[0].updates(), endpoint4("former", "cali0", "10.0.2.1", nil)))
	must(t, dp.Apply(t.Context(), graph.Flush()))
	graph.Apply([]model.Update{model.EndpointUpdate{ID: model.WorkloadID("t", "former")}, endpoint4("heir", "cali1", "10.0.2.1", nil),
		endpoint4("late", "cali2", "10.0.2.9", nil)})
	must(t, dp.Apply(t.Context(), graph.Flush()))
	s.begins(t, "10.0.2.1")
	if dp.has(1002) || !dp.has(1003) {
		t.Errorf("while the table is read the heir is open: %v, another endpoint is: %v", dp.has(1002), dp.has(1003))
	}
	of := func(s dataplane.EndpointStatus) bool { return s.ID == model.WorkloadID("t", "heir") }
	if all := dp.Endpoints(); !strings.Contains(all[slices.IndexFunc(all, of)].NotInForce, "former pods") {
		t.Errorf("the status of the heir is %+v", all[slices.IndexFunc(all, of)])
	}
	refused := errors.New("refused")
	s.end <- refused
	applyUntil(t, dp, "the failure to be reported", func(err error) bool { return errors.Is(err, refused) })
	if dp.has(1002) {
		t.Error("the heir is open after a failure")
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.begins(t, "10.0.2.1")
		s.end <- nil
	}()
	applyUntil(t, dp, "the heir to be open", func(error) bool { return dp.has(1002) })
	<-ended
}

// A pod's interface is made again, and the agent sees the old one go and the new one come at once. No plan follows, and nothing else calls Apply.
func TestAnInterfaceThatIsMadeAgainIsOpenedWithoutAnotherChange(t *testing.T) {
	testutil.Privileged(t)
	dp := openSmall(t, testutil.BPFFS(t), nil)
	defer mustClose(t, dp)
	host := dp.kernel.host.(*FakeHost)
	host.Ending = func(map[netip.Addr]bool) error { return nil }
	graph := calc.New("n")
	graph.Apply(append(restartStages[0].updates(), endpoint4("pod", "cali0", "10.0.2.1", nil)))
	must(t, dp.Apply(t.Context(), graph.Flush()))
	const again = 2001
	host.Ifaces["cali0"] = again
	host.News = append(host.News, again)
	applyUntil(t, dp, "the new interface to be open", func(err error) bool { return err == nil && dp.has(again) })
}

// An open endpoint gets another address, and programs on its interface cannot be made sure of at that moment. It has the address all the same, so the
// next pod does not get its connections.
func TestAnAddressIsItsOwnersThoughAttachingFails(t *testing.T) {
	testutil.Privileged(t)
	dp := openSmall(t, testutil.BPFFS(t), nil)
	defer mustClose(t, dp)
	host, second := dp.kernel.host.(*FakeHost), netip.MustParseAddr("10.0.2.2")
	ended := make(chan bool, 100)
	host.Ending = func(of map[netip.Addr]bool) error {
		ended <- of[second]
		return nil
	}
	graph := calc.New("n")
	graph.Apply(append(restartStages[0].updates(), endpoint4("pod", "cali0", "10.0.2.1", nil)))
	must(t, dp.Apply(t.Context(), graph.Flush()))
	host.Fail[1001], host.News = errors.New("refused"), []uint32{1001}
	graph.Apply([]model.Update{endpoint4("pod", "cali0", second.String(), nil)})
	if err := dp.Apply(t.Context(), graph.Flush()); err == nil {
		t.Error("attaching does not fail")
	}
	if e, ok := dp.kernel.endpoints.Get(1001); !ok || !hasAddr(e, second) {
		t.Fatalf("the endpoint does not have its address: %+v", e)
	}
	graph.Apply([]model.Update{model.EndpointUpdate{ID: model.WorkloadID("t", "pod")}})
	must(t, dp.Apply(t.Context(), graph.Flush()))
	applyUntil(t, dp, "connections of its address to be ended", func(error) bool {
		select {
		case is := <-ended:
			return is
		default:
			return false
		}
	})
}
