package events

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func lease(holder string, renewed time.Time, seconds int32) *coordinationv1.Lease {
	return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, RenewTime: &metav1.MicroTime{Time: renewed}, LeaseDurationSeconds: &seconds,
	}}
}

func TestALeaseIsFreeMineOrAnothers(t *testing.T) {
	for _, tc := range []struct {
		what  string
		lease *coordinationv1.Lease
		want  standing
		until time.Duration // from start
	}{
		{"empty", &coordinationv1.Lease{}, free, 0},
		{"let go", lease("", start, 1), free, 0},
		{"mine", lease("me", start, 60), mine, 0},
		{"mine, long over", lease("me", start.Add(-time.Hour), 60), mine, 0},
		{"another's", lease("you", start, 60), others, time.Minute + skew},
		{"another's, just within", lease("you", start.Add(-time.Minute-skew+1), 60), others, 1},
		{"another's, over", lease("you", start.Add(-time.Minute-skew), 60), free, 0},
		{"of a clock that is a little fast", lease("you", start.Add(skew), 60), others, time.Minute + 2*skew},
		{"of a clock that is far off", lease("you", start.Add(time.Hour), 60), free, 0},
		{"for longer than anyone may", lease("you", start, 1e9), others, mostTerm + skew},
	} {
		t.Run(tc.what, func(t *testing.T) {
			got, until := read(tc.lease, "me", start)
			if got != tc.want || got == others && until.Sub(start) != tc.until {
				t.Errorf("standing %d until %v, want %d until %v", got, until.Sub(start), tc.want, tc.until)
			}
		})
	}
}

func TestTermsAndSpreadsGrowWithTheCluster(t *testing.T) {
	for _, tc := range []struct {
		nodes        int
		term, spread time.Duration
	}{
		{1, time.Minute, time.Second},
		{100, time.Minute, 2 * time.Second},
		{5000, 10 * time.Minute, 100 * time.Second},
		{1e6, 10 * time.Minute, 5 * time.Minute},
	} {
		if term(tc.nodes) != tc.term || spread(tc.nodes) != tc.spread {
			t.Errorf("%d nodes: term %v, spread %v; want %v, %v", tc.nodes, term(tc.nodes), spread(tc.nodes), tc.term, tc.spread)
		}
	}
}
