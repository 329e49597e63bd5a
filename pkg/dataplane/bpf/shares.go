package bpf

import (
	"cmp"
	"log/slog"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/model"
)

// flowShares are the endpoints' shares of the flow tables.
type flowShares struct{ flows *bpfmaps.Flows }

// mostReported is how many endpoints of one namespace are logged by name at once: a tenant with many pods must not fill
// the log.
const mostReported = 5

// full is an endpoint that wanted more open flows than its share.
type full struct {
	id      model.EndpointID
	open    int32
	refused uint64 // since the last report
}

// report logs which endpoints wanted more open flows than their share since the last call.
func (s flowShares) report(bound map[model.EndpointID]*endpoint, log *slog.Logger) error {
	list, err := s.flows.Shares()
	if err != nil {
		return err
	}
	var over []full
	for id, ep := range bound {
		if ep.ifindex == 0 || ep.share == 0 || int(ep.share) > len(list) {
			continue
		}
		if s := list[ep.share-1]; s.Refused != ep.refused {
			over = append(over, full{id: id, open: int32(s.Open), refused: s.Refused - ep.refused})
			ep.refused = s.Refused
		}
	}
	logFull(over, log)
	return nil
}

// logFull logs the endpoints of each namespace that had the most flows refused, and how many others there are.
func logFull(over []full, log *slog.Logger) {
	slices.SortFunc(over, func(a, b full) int {
		return cmp.Or(cmp.Compare(a.id.Namespace, b.id.Namespace), cmp.Compare(b.refused, a.refused), a.id.Compare(b.id))
	})
	for len(over) > 0 {
		namespace := over[0].id.Namespace
		n := slices.IndexFunc(over, func(f full) bool { return f.id.Namespace != namespace })
		if n < 0 {
			n = len(over)
		}
		for _, f := range over[:min(n, mostReported)] {
			log.Warn("an endpoint has reached its limit of open flows; further flows may be evicted while they are in use",
				"endpoint", f.id, "open", f.open, "refused", f.refused)
		}
		if n > mostReported {
			log.Warn("further endpoints of the namespace have reached their limits of open flows", "namespace", namespace,
				"endpoints", n-mostReported)
		}
		over = over[n:]
	}
}

// assign gives an endpoint without a share of the flow tables a free one; of several, the one whose former endpoints have
// the fewest flows left. If no share is free, endpoints share one.
func (s flowShares) assign(ep *endpoint, bound map[model.EndpointID]*endpoint) error {
	if ep.share != 0 {
		return nil
	}
	list, err := s.flows.Shares()
	if err != nil {
		return err
	}
	ep.share = freeShare(bound, list[:bpf.Shares]) + 1
	ep.refused = list[ep.share-1].Refused
	return nil
}

// freeShare is the number of the share that the fewest endpoints have, and of those the one with the fewest open flows.
func freeShare(bound map[model.EndpointID]*endpoint, shares []bpf.Share) uint32 {
	type use struct {
		number    uint32
		endpoints int
		open      int32
	}
	uses := make([]use, len(shares))
	for i := range uses {
		uses[i] = use{number: uint32(i), open: int32(shares[i].Open)}
	}
	for _, ep := range bound {
		if ep.share != 0 {
			uses[ep.share-1].endpoints++
		}
	}
	least := slices.MinFunc(uses, func(a, b use) int {
		return cmp.Or(cmp.Compare(a.endpoints, b.endpoints), cmp.Compare(a.open, b.open), cmp.Compare(a.number, b.number))
	})
	return least.number
}
