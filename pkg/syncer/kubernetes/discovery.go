package kubernetes

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/margay-project/margay/pkg/kube"
)

// discovery asks what the server serves, for all kinds together: they ask at the same times, and one answer is for all that
// ask within a moment. There are more kinds that a cluster may not serve than any cluster serves.
type discovery struct {
	client *kube.Client
	asking chan struct{} // holds a token while one asks

	at        time.Time // of groups
	confirmed bool      // the server was ready just before
	groups    *metav1.APIGroupList
	resources map[schema.GroupVersion]*metav1.APIResourceList

	mu    sync.Mutex
	next  time.Time // time of the next look for absent kinds
	ready time.Time // when the server said last that it is ready, or that it does not say
}

// moment is for how long an answer is for those that ask, too.
const moment = 250 * time.Millisecond

func newDiscovery(client *kube.Client) *discovery {
	return &discovery{client: client, asking: make(chan struct{}, 1)}
}

// Groups are the groups that the server serves.
func (d *discovery) Groups(ctx context.Context) (*metav1.APIGroupList, error) {
	if !d.begin(ctx) {
		return nil, ctx.Err()
	}
	defer d.end()
	if d.groups != nil && time.Since(d.at) < moment {
		return d.groups, nil
	}
	confirmed := d.wasReady()
	groups, err := d.client.Groups(ctx)
	if err != nil {
		return nil, err
	}
	d.at, d.confirmed, d.groups, d.resources = time.Now(), confirmed, groups, map[schema.GroupVersion]*metav1.APIResourceList{}
	return groups, nil
}

// Resources are those of one version, of the same moment as the groups.
func (d *discovery) Resources(ctx context.Context, gv schema.GroupVersion) (*metav1.APIResourceList, error) {
	if !d.begin(ctx) {
		return nil, ctx.Err()
	}
	defer d.end()
	if list := d.resources[gv]; list != nil && time.Since(d.at) < moment {
		return list, nil
	}
	list, err := d.client.Resources(ctx, gv)
	if err == nil && d.resources != nil {
		d.resources[gv] = list
	}
	return list, err
}

// confirm has the next answers be of a server that was ready before it gave them. An error says that it is not ready.
func (d *discovery) confirm(ctx context.Context) error {
	if !d.begin(ctx) {
		return ctx.Err()
	}
	defer d.end()
	if d.groups != nil && d.confirmed && time.Since(d.at) < moment {
		return nil
	}
	if !d.wasReady() {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		if err := d.askReady(ctx); err != nil && patienceWith(err) != silentPatience {
			return err
		}
	}
	d.groups = nil
	return nil
}

// askReady asks the server whether it is ready.
func (d *discovery) askReady(ctx context.Context) error {
	err := d.client.Ready(ctx)
	if err == nil || patienceWith(err) == silentPatience {
		d.mu.Lock()
		d.ready = time.Now()
		d.mu.Unlock()
	}
	return err
}

// wasReady reports whether it was a moment ago.
func (d *discovery) wasReady() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.ready.IsZero() && time.Since(d.ready) < moment
}

// begin reports false if ctx ended before it was this one's turn.
func (d *discovery) begin(ctx context.Context) bool {
	select {
	case d.asking <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (d *discovery) end() { <-d.asking }

// pause is the time until the server is asked again for the kinds it did not serve. The next look is at the same time
// for all kinds.
func (d *discovery) pause(every time.Duration) time.Duration {
	every = max(every, time.Second) // an interval of none would be no pause
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if !now.Before(d.next) {
		d.next = now.Add(every/2 + jitter(every))
	}
	return d.next.Sub(now)
}
