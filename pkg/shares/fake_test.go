package shares

import (
	"errors"
	"testing"

	"github.com/margay-project/margay/pkg/conntrack"
)

// The fake has the semantics of conntrack.Conn that this package depends on.
func TestTheFakeIsLikeTheKernelsTable(t *testing.T) {
	f := &Fake{Limit: 10}
	v6 := between(podA6, podA6, podA6, 5)
	f.Open(2, podA, outside, 4)
	f.Add(v6)
	for _, c := range []struct {
		family conntrack.Family
		filter conntrack.Filter
		want   int
	}{{conntrack.Both, conntrack.Filter{}, 3}, {conntrack.IPv4, conntrack.Filter{}, 2}, {conntrack.IPv6, conntrack.Filter{}, 1},
		{conntrack.Both, conntrack.Filter{Mark: 1, Mask: 1}, 1}, {conntrack.Both, conntrack.Filter{Mark: 4, Mask: 4}, 3}, {conntrack.Both, conntrack.Filter{Mark: 4, Mask: 5}, 2}} {
		n := 0
		if err := f.Dump(c.family, c.filter, func(conntrack.Entry) { n++ }); err != nil || n != c.want {
			t.Errorf("family %d, filter %+v: %d entries, want %d: %v", c.family, c.filter, n, c.want, err)
		}
	}
	all := f.Entries()
	if all[0].Original == all[1].Original || all[0].ID == all[1].ID {
		t.Errorf("two connections are one: %v", all)
	}
	former := all[0]
	former.ID = 99 // of a connection with the same tuple that has ended
	errs := f.Delete([]conntrack.Entry{former, all[0], all[0], v6})
	if !errors.Is(errs[0], conntrack.ErrNoEntry) || errs[1] != nil || !errors.Is(errs[2], conntrack.ErrNoEntry) || errs[3] != nil {
		t.Errorf("%v", errs)
	}
	if entries, limit, err := f.Usage(); entries != 1 || limit != 10 || err != nil || f.OpenedBy(podA) != 1 || f.Dumps() != 6 {
		t.Errorf("%d of %d entries, %d dumps: %v", entries, limit, f.Dumps(), err)
	}
}
