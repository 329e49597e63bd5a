package events

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
)

// LeaseName is the Lease that the node holds which tells of what all nodes see.
const LeaseName = "margay-events"

const (
	// All nodes together read the lease at most this often: when there is first something to tell, and later.
	lookSpread   = 20 * time.Millisecond  // a node
	leaseSpread  = 120 * time.Millisecond // a node
	leastSpread  = time.Second
	mostSpread   = 5 * time.Minute
	leastTerm    = time.Minute
	mostTerm     = 10 * time.Minute
	renewals     = 3                // of a term
	skew         = 30 * time.Second // of clocks, that a term is not cut short by
	callTimeout  = 10 * time.Second
	stopTimeout  = 2 * time.Second
	deniedFor    = 30 * time.Minute // before what was forbidden is tried again
	releasedTerm = time.Second
)

// term is how long a cluster of so many nodes lets a holder be silent.
func term(nodes int) time.Duration {
	return min(max(time.Duration(nodes)*leaseSpread, leastTerm), mostTerm)
}

// spread is the time over which the nodes of a cluster spread what they all do for the same reason.
func spread(nodes int) time.Duration {
	return min(max(time.Duration(nodes)*lookSpread, leastSpread), mostSpread)
}

// upTo is a random part of d.
func upTo(d time.Duration) time.Duration { return rand.N(d) + 1 }

// standing is who may tell what is shared, as a lease has it.
type standing uint8

const (
	free   standing = iota + 1 // nobody, or somebody who has been silent for too long
	mine                       // this node
	others                     // another node
)

// read judges a lease at a time. For others, until is when its holder will have been silent for too long. Clocks that
// differ make it at worst two nodes that tell the same: the API server then keeps one event, for their names agree.
func read(l *coordinationv1.Lease, identity string, now time.Time) (s standing, until time.Time) {
	holder, renewed, seconds := l.Spec.HolderIdentity, l.Spec.RenewTime, l.Spec.LeaseDurationSeconds
	if holder == nil || *holder == "" || renewed == nil || seconds == nil {
		return free, time.Time{}
	}
	if *holder == identity {
		return mine, time.Time{}
	}
	length := min(time.Duration(*seconds)*time.Second, mostTerm)
	until = renewed.Add(length + skew)
	if now.Before(until) && until.Sub(now) <= length+2*skew { // otherwise it was renewed in the far future
		return others, until
	}
	return free, time.Time{}
}

// campaign holds the lease while there is something to tell, or knows when to look again.
type campaign struct {
	leases   dynamic.ResourceInterface // of the agent's namespace
	identity string

	running bool
	leading bool
	next    time.Time // when to look at the lease again, or renew it; only while running
}

// start begins to campaign: the first look is at a random time, for all nodes begin at once.
func (c *campaign) start(now time.Time, nodes int) {
	if !c.running {
		c.running, c.next = true, now.Add(upTo(spread(nodes)))
	}
}

// look reads the lease and takes or renews it if it may. Whoever cannot do that does not lead. Only while running, and
// not before next.
func (c *campaign) look(ctx context.Context, now time.Time, nodes int) error {
	length := term(nodes)
	c.next = now.Add(length/renewals + upTo(length/10))
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	lease, err := c.get(ctx)
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{
			TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
			ObjectMeta: metav1.ObjectMeta{Name: LeaseName},
		}
		c.hold(lease, now, length)
		return c.outcome(c.create(ctx, lease), "make")
	}
	if err != nil {
		c.leading = false
		return fmt.Errorf("read lease %s, which says who reports events: %w", LeaseName, err)
	}
	standing, until := read(lease, c.identity, now)
	if standing == others {
		c.leading = false
		c.next = until.Add(upTo(length))
		return nil
	}
	c.hold(lease, now, length)
	return c.outcome(c.update(ctx, lease), "take")
}

func (c *campaign) hold(l *coordinationv1.Lease, now time.Time, length time.Duration) {
	if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != c.identity {
		transitions := int32(0)
		if l.Spec.LeaseTransitions != nil {
			transitions = *l.Spec.LeaseTransitions + 1
		}
		l.Spec.LeaseTransitions = &transitions
		l.Spec.AcquireTime = &metav1.MicroTime{Time: now}
	}
	seconds := int32(length / time.Second)
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = &c.identity, &seconds
	l.Spec.RenewTime = &metav1.MicroTime{Time: now}
}

// outcome is what became of an attempt to write the lease.
func (c *campaign) outcome(err error, what string) error {
	c.leading = err == nil
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) { // somebody was faster
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s lease %s, which says who reports events: %w", what, LeaseName, err)
	}
	return nil
}

// stop ends the campaign and lets go of the lease, so that another node need not wait for its end.
func (c *campaign) stop(ctx context.Context, now time.Time) error {
	led := c.leading
	c.running, c.leading = false, false
	if !led {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	lease, err := c.get(ctx)
	if err == nil {
		if standing, _ := read(lease, c.identity, now); standing != mine {
			return nil
		}
		nobody, seconds := "", int32(releasedTerm/time.Second)
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &nobody, &seconds
		lease.Spec.RenewTime = &metav1.MicroTime{Time: now}
		err = c.update(ctx, lease)
	}
	if err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("let go of lease %s, which says who reports events: %w", LeaseName, err)
	}
	return nil
}

// The typed clients of client-go bring the types of all of Kubernetes into the agent's memory. These do not.

func (c *campaign) get(ctx context.Context) (*coordinationv1.Lease, error) {
	object, err := c.leases.Get(ctx, LeaseName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	l := &coordinationv1.Lease{}
	return l, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, l)
}

func (c *campaign) create(ctx context.Context, l *coordinationv1.Lease) error {
	object, err := untyped(l)
	if err == nil {
		_, err = c.leases.Create(ctx, object, metav1.CreateOptions{})
	}
	return err
}

func (c *campaign) update(ctx context.Context, l *coordinationv1.Lease) error {
	object, err := untyped(l)
	if err == nil {
		_, err = c.leases.Update(ctx, object, metav1.UpdateOptions{})
	}
	return err
}

// untyped is an object, with its kind, for a client that knows no types.
func untyped(object runtime.Object) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	return &unstructured.Unstructured{Object: fields}, err
}
