package kubernetes

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// Calico's API server lists and watches the policies of the tiers that there are when a list or watch begins. Some releases
// (3.29, and 3.30 at first) leave a watch open when a tier is made, and it never gets the tier's policies; later ones end it, and a
// watch that resumes behind such a policy does not get it either. So the agent lists policies again when it has seen a new tier. Where
// CRDs serve the group that is needless; the agent does not know.

// tierPause is the longest time from a new tier to the list; agents are spread over half of it.
const tierPause = 12 * time.Second

// errNewTier ends following a kind: it has to be listed again.
var errNewTier = errors.New("there is a new tier")

// relisting has the policies of Calico's first group listed again when there is a new tier.
type relisting struct {
	newTier chan struct{} // holds a token when there is a tier that was not known

	mu   sync.Mutex
	ends map[*kind]context.CancelCauseFunc // end following a kind of policy
}

func newRelisting() *relisting {
	return &relisting{newTier: make(chan struct{}, 1), ends: map[*kind]context.CancelCauseFunc{}}
}

// noteTier says that there is a tier that was not known.
func (r *relisting) noteTier() {
	select {
	case r.newTier <- struct{}{}:
	default: // a token is there already
	}
}

// follows notes that a kind is followed in the first group until end is called. The function that is returned takes that back.
func (r *relisting) follows(k *kind, end context.CancelCauseFunc) (over func()) {
	if !k.Tiered {
		return func() {}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends[k] = end
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.ends, k)
	}
}

// run ends following policies some time after each new tier, until ctx ends. They are listed and followed again then.
func (r *relisting) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.newTier:
		}
		if !sleep(ctx, jitter(tierPause)) {
			return
		}
		r.mu.Lock()
		ends := slices.Collect(maps.Values(r.ends))
		r.mu.Unlock()
		for _, end := range ends {
			end(errNewTier)
		}
	}
}
