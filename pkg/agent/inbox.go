package agent

import (
	"sync"
	"time"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
)

// inbox holds the updates that the source has delivered and the loop has not drained, with the times since when they
// wait. Updates from before the first complete snapshot have no times: nothing waits for an agent that starts. Safe for
// concurrent use.
type inbox struct {
	node   string
	buffer *syncer.Buffer

	mu     sync.Mutex // guards all below
	inSync bool
	oldest time.Time                      // arrival of the oldest update that waits; zero: none does
	pods   map[model.EndpointID]time.Time // arrival of updates of this node's endpoints that wait
}

// Batch is what the loop drained at once.
type Batch struct {
	Updates  []model.Update
	InSync   bool                           // they complete the first snapshot
	Settings []model.Update                 // those with configuration: FelixConfigurations, and the Node of this node
	Policies []model.PolicyKey              // of policies among them, not more than are looked at one by one
	Since    time.Time                      // arrival of the oldest; zero: not measured
	Pods     map[model.EndpointID]time.Time // arrival of those that are endpoints of this node
}

func newInbox(node string) *inbox {
	return &inbox{node: node, buffer: syncer.NewBuffer(), pods: map[model.EndpointID]time.Time{}}
}

// put adds what the source has just delivered.
func (i *inbox) put(updates []model.Update, now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, u := range updates {
		switch u := u.(type) {
		case model.InSync:
			i.inSync = true
		case model.EndpointUpdate:
			i.arrived(u, now)
		}
	}
	if i.inSync && i.oldest.IsZero() {
		i.oldest = now
	}
	i.buffer.Put(updates)
}

func (i *inbox) arrived(u model.EndpointUpdate, now time.Time) {
	if u.Endpoint == nil || u.Endpoint.HostNetwork || u.Endpoint.Node != i.node {
		delete(i.pods, u.ID)
		return
	}
	if _, waits := i.pods[u.ID]; !waits && i.inSync {
		i.pods[u.ID] = now
	}
}

// ready delivers when there is something to drain.
func (i *inbox) ready() <-chan struct{} { return i.buffer.Ready() }

// empty reports whether everything that was delivered has been drained.
func (i *inbox) empty() bool { return i.buffer.Len() == 0 }

// hold says in which namespaces network sets are being changed in parts, or policies wait.
func (i *inbox) hold(namespaces map[string]bool) { i.buffer.Hold(namespaces) }

// drain returns the oldest updates, at most limit of them.
func (i *inbox) drain(limit int) Batch {
	i.mu.Lock()
	defer i.mu.Unlock()
	b := Batch{Updates: i.buffer.Drain(limit), Since: i.oldest}
	for _, u := range b.Updates {
		switch u := u.(type) {
		case model.InSync:
			b.InSync = true
		case model.ConfigurationUpdate:
			b.Settings = append(b.Settings, u)
		case model.NodeUpdate:
			if u.Name == i.node {
				b.Settings = append(b.Settings, u)
			}
		case model.PolicyUpdate:
			if len(b.Policies) < mostNotedPolicy {
				b.Policies = append(b.Policies, u.Key)
			}
		case model.EndpointUpdate:
			i.drained(u.ID, &b)
		}
	}
	if i.empty() {
		i.oldest = time.Time{}
		clear(i.pods)
	}
	return b
}

func (i *inbox) drained(id model.EndpointID, b *Batch) {
	since, ok := i.pods[id]
	if !ok {
		return
	}
	delete(i.pods, id)
	if b.Pods == nil {
		b.Pods = map[model.EndpointID]time.Time{}
	}
	b.Pods[id] = since
}
