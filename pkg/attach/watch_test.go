package attach

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/margay-project/margay/internal/testutil"
)

// await is the next value of a watch.
func await[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v, ok := <-from:
		if !ok {
			t.Fatal("the watch ended")
		}
		return v
	case <-time.After(time.Minute):
		t.Fatal("the watch reports nothing")
	}
	panic("unreachable")
}

func setUp(t *testing.T, ifindex uint32) {
	t.Helper()
	l, err := netlink.LinkByIndex(int(ifindex))
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(l); err != nil {
		t.Fatal(err)
	}
}

// An interface is there whether or not it is up, and whether or not anything is routed to it.
func TestPresentAreTheInterfacesOfTheNamespace(t *testing.T) {
	room(t)
	veth(t, "calione")
	setUp(t, veth(t, "ethother"))
	got, err := Present(map[string]bool{"calione": true, "ethother": true, "caligone": true, "gone interface": true})
	if err != nil || !maps.Equal(got, map[string]bool{"calione": true, "ethother": true}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestInterfacesAreReportedAsTheyComeAndGo(t *testing.T) {
	ns, _ := room(t)
	first := veth(t, "calione")
	veth(t, "ethother")
	ctx, cancel := context.WithCancel(t.Context())
	_, watch, err := WatchInterfaces(ctx, watchIn(ns), "cali")
	if err != nil {
		t.Fatal(err)
	}
	mustSee := func(want Interface) {
		t.Helper()
		if got := await(t, watch); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	mustSee(Interface{Ifindex: first, Name: "calione"})
	setUp(t, first)
	mustSee(Interface{Ifindex: first, Name: "calione", Up: true})
	second := veth(t, "calitwo")
	mustSee(Interface{Ifindex: second, Name: "calitwo"})
	removeLink(t, first)
	for range 2 { // perhaps down first
		if got := await(t, watch); got == (Interface{Ifindex: first, Name: "calione", Gone: true}) {
			break
		} else if got.Ifindex != first || got.Up {
			t.Errorf("got %+v", got)
		}
	}
	l, err := netlink.LinkByIndex(int(second))
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetName(l, "ethnow"); err != nil {
		t.Fatal(err)
	}
	mustSee(Interface{Ifindex: second, Name: "calitwo", Gone: true})
	cancel()
	if _, open := <-watch; open {
		t.Error("the watch goes on after its end")
	}
}

func TestAWatchThatIsNotReadKeepsTheNewestState(t *testing.T) {
	ns, _ := room(t)
	_, watch, err := WatchInterfaces(t.Context(), watchIn(ns), "cali")
	if err != nil {
		t.Fatal(err)
	}
	vanished := veth(t, "calione")
	removeLink(t, vanished)
	kept := veth(t, "calitwo")
	setUp(t, kept)
	want := Interface{Ifindex: kept, Name: "calitwo", Up: true}
	for got := await(t, watch); got != want; got = await(t, watch) {
		if got.Ifindex == kept && got.Gone {
			t.Errorf("got %+v", got)
		}
	}
}

// A subscription that loses notifications because the socket's buffer is full reads the state anew and reports what it
// missed.
func TestAWatchThatStartsOverReportsWhatItMissed(t *testing.T) {
	ns, _ := room(t)
	first, second := veth(t, "calione"), veth(t, "calitwo")
	w := &interfaceWatch{options: watchIn(ns), prefix: "cali", known: map[uint32]Interface{}, out: make(chan Interface)}
	var log bytes.Buffer
	w.options.Logger = slog.New(slog.NewTextHandler(&log, nil))
	if err := w.open(); err != nil {
		t.Fatal(err)
	}
	if err := w.sub.socket.SetReceiveBufferSize(1, true); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		removeLink(t, veth(t, "calimany"))
	}
	removeLink(t, first)
	third := veth(t, "calithree")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		keepUp(ctx, "interfaces", w, w.options.Logger)
	}()
	state := map[uint32]bool{}
	for !state[second] || !state[third] || state[first] {
		got := await(t, w.out)
		state[got.Ifindex] = !got.Gone
	}
	cancel()
	<-done
	if !strings.Contains(log.String(), "no buffer space") {
		t.Errorf("the subscription did not fail: %s", log.String())
	}
}

// An interface may have gone and come again under its name and number while notifications were lost.
func TestAWatchThatStartsOverReportsWhatLooksTheSame(t *testing.T) {
	ns, _ := room(t)
	ifindex := veth(t, "calione")
	w := &interfaceWatch{options: watchIn(ns), prefix: "cali", known: map[uint32]Interface{}, out: make(chan Interface)}
	for _, when := range []string{"at first", "once more"} {
		if err := w.open(); err != nil {
			t.Fatal(err)
		}
		w.sub.close()
		if !slices.Equal(w.unread, []uint32{ifindex}) {
			t.Errorf("%s: %v are to be reported, want %d", when, w.unread, ifindex)
		}
		w.unread = nil // read
	}
}

func TestAddressesAreReportedWhenTheyChange(t *testing.T) {
	ns, _ := room(t)
	ifindex := veth(t, "calione")
	l, err := netlink.LinkByIndex(int(ifindex))
	if err != nil {
		t.Fatal(err)
	}
	watch, err := WatchAddresses(t.Context(), watchIn(ns))
	if err != nil {
		t.Fatal(err)
	}
	if got := await(t, watch); len(got) != 0 {
		t.Errorf("at first: %v", got)
	}
	four, six := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	for _, text := range []string{"192.0.2.1/24", "2001:db8::1/64"} {
		a, err := netlink.ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.AddrAdd(l, a); err != nil {
			t.Fatal(err)
		}
	}
	for got := await(t, watch); !slices.Equal(got, []netip.Addr{four, six}); got = await(t, watch) {
	}
	removeLink(t, ifindex)
	for got := await(t, watch); len(got) != 0; got = await(t, watch) {
	}
}

func TestThePodSideOfAVeth(t *testing.T) {
	room(t)
	pod := testutil.NetNS(t)
	host := veth(t, "calione")
	if _, ok, err := FindPodSide(host); ok || err != nil {
		t.Errorf("both ends here: ok %v (%v), want not ok", ok, err)
	}
	peer, err := netlink.LinkByName("peer-calione")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetMTU(peer, 1400); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetNsFd(peer, pod.Fd()); err != nil {
		t.Fatal(err)
	}
	var want PodSide
	pod.Do(t, func() {
		l, err := netlink.LinkByName("peer-calione")
		if err != nil {
			t.Fatal(err)
		}
		want = PodSide{uint32(l.Attrs().Index), [6]byte(l.Attrs().HardwareAddr), 1400}
	})
	if got, ok, err := FindPodSide(host); !ok || err != nil || got != want {
		t.Errorf("got %+v, ok %v (%v), want %+v", got, ok, err, want)
	}
	if _, ok, err := FindPodSide(1); ok || err != nil {
		t.Errorf("loopback: ok %v (%v), want not ok", ok, err)
	}
	if _, _, err := FindPodSide(4711); !errors.Is(err, ErrGone) {
		t.Errorf("no interface: %v, want ErrGone", err)
	}
}
