package bpfmaps

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// MapUse is how full a map is.
type MapUse struct{ Entries, Max uint32 }

// Use counts the entries of the connection tables, by map name. The kernel keeps no count of its own, so they are walked.
// It takes about 0.2 s of CPU for a million flows, and ends early with ctx: it then returns its counts so far, and an
// error.
func (f *Flows) Use(ctx context.Context) (map[string]MapUse, error) {
	use := map[string]MapUse{}
	n4, err4 := entriesOf[bpf.Ct4Key, bpf.CtEntry](ctx, f.ct4)
	if err4 == nil {
		use[bpf.MargayMapCt4] = MapUse{n4, f.ct4.MaxEntries()}
	} else {
		err4 = fmt.Errorf("count entries of map %s: %w", bpf.MargayMapCt4, err4)
	}
	n6, err6 := entriesOf[bpf.Ct6Key, bpf.CtEntry](ctx, f.ct6)
	if err6 == nil {
		use[bpf.MargayMapCt6] = MapUse{n6, f.ct6.MaxEntries()}
	} else {
		err6 = fmt.Errorf("count entries of map %s: %w", bpf.MargayMapCt6, err6)
	}
	return use, errors.Join(err4, err6)
}

func entriesOf[K, V any](ctx context.Context, m *ebpf.Map) (uint32, error) {
	n := uint32(0)
	for part, err := range readAll[K, V](m) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return 0, err
		}
		n += uint32(len(part.keys))
	}
	return min(n, m.MaxEntries()), nil // one that is moved meanwhile may be seen twice
}

// Swept is what the sweeps have found so far, of open flows and of half-open ones. The walks, over one table each, are
// counted under open.
func (f *Flows) Swept() (open, half bpf.MargaySweep, err error) {
	for kind, to := range []*bpf.MargaySweep{&open, &half} {
		if err := f.swept.Lookup(uint32(kind), to); err != nil {
			return open, half, fmt.Errorf("read map %s: %w", bpf.MargayMapSwept, err)
		}
	}
	return open, half, nil
}
