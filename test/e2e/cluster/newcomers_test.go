package cluster

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// enforcedLimit is when a newcomer that cannot be reached is given up.
const enforcedLimit = 15 * time.Second

// settleTime is how long interfaces are there before addresses are told: a kubelet takes as long to start containers.
const settleTime = time.Second

// newcomer is a pod that is probed from before the API server knows its address.
type newcomer struct {
	*resident
	number uint32
	conn   *net.UDPConn // in the pod

	sent, acked time.Time       // of the request that tells its addresses
	passed      [4]atomic.Int64 // when the kernel received the first probe of a kind, in ns since 1970; 0: none
	both        chan struct{}   // closed when it is reached in both directions
	once        sync.Once
}

// sample is how long a newcomer's policy took to be enforced in both directions.
type sample struct {
	acked time.Duration // since the API server's answer; negative if that was read later than the first probes
	sent  time.Duration // since the request
	at    time.Time     // when it was enforced
}

// arrive plugs newcomers and has them probed.
func (p *probes) arrive(count int) []*newcomer {
	p.r.c.t.Helper()
	all := make([]*newcomer, count)
	p.r.c.each(count, func(ctx context.Context, i int) error {
		s, err := p.r.plug(ctx, residentSpace, "")
		if err != nil {
			return err
		}
		n := &newcomer{resident: s, both: make(chan struct{})}
		if n.conn, err = open(s.pod.Host, probePort); err != nil {
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.last++
		n.number = p.last
		p.byNumber[n.number] = n
		p.receive(n.conn)
		all[i] = n
		return nil
	})
	return all
}

// watch has exactly these probed from now on, each every interval.
func (p *probes) watch(interval time.Duration, these ...*newcomer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.interval.Store(int64(interval))
	p.active = these
}

// leave removes newcomers for good.
func (p *probes) leave(all []*newcomer) {
	p.r.c.t.Helper()
	p.watch(time.Millisecond)
	p.r.c.each(len(all), func(ctx context.Context, i int) error {
		all[i].conn.Close()
		return p.r.remove(ctx, all[i].resident)
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range all {
		delete(p.byNumber, n.number)
	}
}

// introduce tells the API server of a newcomer.
func (p *probes) introduce(ctx context.Context, n *newcomer) error {
	n.sent = time.Now()
	err := p.r.tell(ctx, n.resident)
	n.acked = time.Now()
	return err
}

// judge waits until the newcomer is reached in both directions, and fails the test for what has passed that should not.
func (p *probes) judge(n *newcomer) (s sample) {
	p.r.c.t.Helper()
	over := time.NewTimer(enforcedLimit)
	defer over.Stop()
	select {
	case <-n.both:
	case <-over.C:
		p.r.c.t.Fatalf("pod %s: probes in: %d, out: %d after %v", n.pod.Name(), n.passed[probeIn].Load(), n.passed[probeOut].Load(), enforcedLimit)
	}
	for _, kind := range []byte{probeStranger, probeForbidden} {
		if at := n.passed[kind].Load(); at != 0 {
			p.r.c.t.Errorf("pod %s: a probe of kind %d that policy denies passed %v after its address was told", n.pod.Name(), kind, time.Unix(0, at).Sub(n.sent))
		}
	}
	for _, kind := range []byte{probeIn, probeOut} {
		if at := time.Unix(0, n.passed[kind].Load()); at.Before(n.sent.Round(0)) {
			p.r.c.t.Errorf("pod %s: a probe passed %v before its address was told", n.pod.Name(), n.sent.Round(0).Sub(at))
		}
	}
	last := time.Unix(0, max(n.passed[probeIn].Load(), n.passed[probeOut].Load()))
	return sample{last.Sub(n.acked.Round(0)), last.Sub(n.sent.Round(0)), last}
}

// oneByOne measures newcomers one after the other, ten at a time being there, so that the number of pods stays about
// what it was.
func (p *probes) oneByOne(count int) (samples []sample) {
	p.r.c.t.Helper()
	for len(samples) < count {
		group := p.arrive(min(10, count-len(samples)))
		p.watch(time.Millisecond, group...)
		pause(settleTime) // closed, all of them
		for _, n := range group {
			p.watch(time.Millisecond, n)
			pause(20 * time.Millisecond)
			p.r.c.must(p.introduce(p.r.c.t.Context(), n))
			samples = append(samples, p.judge(n))
		}
		p.watch(time.Millisecond, group...)
		pause(50 * time.Millisecond)
		for _, n := range group {
			p.judge(n)
		}
		p.leave(group)
	}
	return samples
}

// atOnce measures newcomers whose addresses are told at the same time.
func (p *probes) atOnce(count int) (samples []sample) {
	p.r.c.t.Helper()
	group := p.arrive(count)
	p.watch(5*time.Millisecond, group...)
	pause(settleTime)
	p.r.c.each(count, func(ctx context.Context, i int) error { return p.introduce(ctx, group[i]) })
	for _, n := range group {
		samples = append(samples, p.judge(n))
	}
	pause(50 * time.Millisecond)
	for _, n := range group {
		p.judge(n)
	}
	p.leave(group)
	return samples
}

// pause lets time go by in which something must not be: that a probe passes before the API server has heard of the pod,
// or that what is denied ever does.
func pause(d time.Duration) {
	over := time.NewTimer(d)
	defer over.Stop()
	<-over.C
}

// quantile of durations: the smallest that at least this share of them does not exceed.
func quantile(all []time.Duration, share float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)-1, max(0, int(float64(len(sorted))*share+0.999999)-1))]
}

func since(samples []sample, of func(sample) time.Duration) (all []time.Duration) {
	for _, s := range samples {
		all = append(all, of(s))
	}
	return all
}
