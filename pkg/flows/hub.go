package flows

import (
	"context"
	"sync"
	"time"
)

// Kept is how many records a Hub keeps. It bounds the memory of all subscriptions together, about 2 MiB, and so how far
// one may fall behind.
const Kept = 4096

// Hub hands records to subscribers. It keeps one copy of the newest records for all of them, so neither many nor slow
// subscribers cost memory. No subscriber waits for a slow one: a record that is replaced before the slow one has read
// it is lost to that one alone, and counted.
//
// Safe for concurrent use.
type Hub struct {
	mu   sync.Mutex // guards everything, and the subscriptions' fields
	ring []*Record  // record number n is at n % len(ring)
	next uint64     // number of the next record; those before next-len(ring) are gone
	subs map[*Subscription]struct{}

	Examples Examples // of staged verdicts, among all records so far
}

// NewHub returns a Hub that keeps that many records.
func NewHub(kept int) *Hub {
	return &Hub{ring: make([]*Record, kept), subs: map[*Subscription]struct{}{}}
}

// Subscription is one subscriber's place among the records.
type Subscription struct {
	hub    *Hub
	filter Filter
	at     uint64 // number of the next record to look at
	lost   uint64 // records it wanted that were replaced, since the last Next
	wake   chan struct{}
	since  time.Time
	from   time.Time
}

func (s *Subscription) wants(r *Record) bool { return !r.Time.Before(s.since) && s.filter.Matches(r) }

// Publish hands out records in their order. It never waits for a subscriber.
func (h *Hub) Publish(records []*Record) {
	h.Examples.note(records)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range records {
		h.replace(r)
	}
	for s := range h.subs {
		select {
		case s.wake <- struct{}{}:
		default: // it is awake already
		}
	}
}

// replace puts a record in the place of the oldest, which is lost to those who have not taken it yet.
func (h *Hub) replace(r *Record) {
	place := &h.ring[h.next%uint64(len(h.ring))]
	if old := *place; old != nil {
		for s := range h.subs {
			if s.at+uint64(len(h.ring)) != h.next {
				continue
			}
			if s.at++; s.wants(old) {
				s.lost++
			}
		}
	}
	*place = r
	h.next++
}

// Subscribe delivers the records since a time that fit the filter: those of them that are kept, and those that come.
// Close the Subscription.
func (h *Hub) Subscribe(f Filter, since time.Time) *Subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &Subscription{hub: h, filter: f, wake: make(chan struct{}, 1), since: since}
	if size := uint64(len(h.ring)); h.next > size {
		s.at = h.next - size
		if first := h.ring[s.at%size]; first.Time.After(since) {
			s.from = first.Time
		}
	}
	h.subs[s] = struct{}{}
	return s
}

// Subscribers is how many there are.
func (h *Hub) Subscribers() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.subs)
}

// From is the time of the oldest record that was kept when the subscription began, if records since the time that was
// asked for are not kept any more; otherwise it is zero.
func (s *Subscription) From() time.Time { return s.from }

// Next waits until there are records that fit and returns at least one of them and at most as many as given, with how
// many were lost before the first. The error is ctx's. For one goroutine.
func (s *Subscription) Next(ctx context.Context, most int) (records []*Record, lost uint64, err error) {
	for {
		if records, lost = s.drain(most); len(records) > 0 {
			return records, lost, nil
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

func (s *Subscription) drain(most int) (records []*Record, lost uint64) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	for ; s.at < h.next && len(records) < most; s.at++ {
		if r := h.ring[s.at%uint64(len(h.ring))]; s.wants(r) {
			records = append(records, r)
		}
	}
	if len(records) > 0 {
		lost, s.lost = s.lost, 0
	}
	return records, lost
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	delete(s.hub.subs, s)
}
