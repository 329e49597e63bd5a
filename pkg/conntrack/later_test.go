package conntrack

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
)

// A kernel without a table of connections is not asked for one: that would make it load modules.
func TestATableThatIsNotThereIsNotOpened(t *testing.T) {
	opened, there, fails := 0, false, error(nil)
	l := &Later{there: func() (bool, error) { return there, fails }, open: func() (*Conn, error) { opened++; return nil, errOpen }}
	entry := Entry{Original: Tuple{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), Protocol: unix.IPPROTO_TCP}}
	if entries, limit, err := l.Usage(); entries != 0 || limit != 0 || err != nil {
		t.Errorf("%d of %d, %v", entries, limit, err)
	}
	if err := l.Dump(Both, Filter{}, func(Entry) { t.Error("there is an entry") }); err != nil {
		t.Error(err)
	}
	if errs := l.Delete([]Entry{entry}); len(errs) != 1 || !errors.Is(errs[0], ErrNoEntry) {
		t.Errorf("%v", errs)
	}
	if err := l.Close(); err != nil || opened != 0 {
		t.Errorf("opened %d times, %v", opened, err)
	}
	fails = errOpen
	if _, _, err := l.Usage(); !errors.Is(err, errOpen) || opened != 0 {
		t.Errorf("it is not known whether there is a table: opened %d times, %v", opened, err)
	}
	there, fails = true, nil
	for range 2 { // an error is not kept
		if _, _, err := l.Usage(); !errors.Is(err, errOpen) {
			t.Errorf("%v", err)
		}
	}
	if errs := l.Delete([]Entry{entry}); !errors.Is(errs[0], errOpen) || opened != 3 {
		t.Errorf("opened %d times, %v", opened, errs)
	}
}

var errOpen = errors.New("not now")

// From the moment on in which the kernel has the table, it is read.
func TestATableThatAppearsIsOpened(t *testing.T) {
	testutil.Privileged(t)
	if there, err := IsThere(); err != nil || !there {
		t.Skipf("this kernel tracks no connections: %v", err)
	}
	testutil.NetNS(t).Enter(t)
	there := false
	l := OpenLater()
	l.there = func() (bool, error) { return there, nil }
	defer l.Close()
	if _, limit, err := l.Usage(); limit != 0 || err != nil {
		t.Fatalf("limit %d, %v", limit, err)
	}
	there = true
	for range 2 {
		if _, limit, err := l.Usage(); limit == 0 || err != nil {
			t.Errorf("limit %d, %v", limit, err)
		}
	}
	first := l.conn
	if err := l.Dump(Both, Filter{}, func(Entry) {}); err != nil || l.conn != first {
		t.Errorf("opened again, or %v", err)
	}
}
