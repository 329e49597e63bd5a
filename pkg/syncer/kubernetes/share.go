package kubernetes

import (
	"hash/maphash"
	"maps"
	"slices"
	"sync"

	"github.com/margay-project/margay/pkg/model"
)

// sharing lets the updates of many objects of a kind share their equal parts: pods of one workload differ in name, node
// and addresses only. Safe for concurrent use.
type sharing struct {
	strings *recent
	seed    maphash.Seed

	mu     sync.Mutex
	shapes map[uint64]*shape // by hash; of two with one hash the later is not shared
}

// shape is what objects have in common.
type shape struct {
	labels   map[string]string
	profiles []string
	ports    []model.NamedPort

	hash uint64
	refs int // objects that are known and have it
}

func newSharing(strings *recent) *sharing {
	return &sharing{strings: strings, seed: maphash.MakeSeed(), shapes: map[uint64]*shape{}}
}

// update returns u with the parts that it shares with other updates. keep counts the use of the shared parts.
func (s *sharing) update(u model.Update) (model.Update, *shape) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch u := u.(type) {
	case model.EndpointUpdate:
		u.ID.Namespace = s.strings.same(u.ID.Namespace)
		if u.Endpoint == nil {
			return u, nil
		}
		sh := s.same(u.Endpoint.Labels, u.Endpoint.Profiles, u.Endpoint.Ports)
		u.Endpoint.Node = s.strings.same(u.Endpoint.Node)
		u.Endpoint.Labels, u.Endpoint.Profiles, u.Endpoint.Ports = sh.labels, sh.profiles, sh.ports
		return u, sh
	case model.ProfileUpdate:
		if u.Profile == nil {
			return u, nil
		}
		sh := s.same(u.Profile.Labels, nil, nil)
		u.Profile.Labels = sh.labels
		return u, sh
	case model.EndpointSliceUpdate:
		u.ID.Namespace = s.strings.same(u.ID.Namespace)
		if u.Slice != nil {
			u.Slice.Service.Namespace = u.ID.Namespace
			u.Slice.Addrs, u.Slice.Ports = slices.Clip(u.Slice.Addrs), slices.Clip(u.Slice.Ports)
		}
		return u, nil
	}
	return u, nil
}

// same returns the shape that is like these, which it may keep.
func (s *sharing) same(labels map[string]string, profiles []string, ports []model.NamedPort) *shape {
	hash := s.hash(labels, profiles, ports)
	have := s.shapes[hash]
	if have != nil && maps.Equal(have.labels, labels) && slices.Equal(have.profiles, profiles) && slices.Equal(have.ports, ports) {
		return have
	}
	sh := &shape{labels: make(map[string]string, len(labels)), hash: hash}
	for k, v := range labels {
		sh.labels[s.strings.same(k)] = s.strings.same(v)
	}
	for _, p := range profiles {
		sh.profiles = append(sh.profiles, s.strings.same(p))
	}
	sh.profiles = slices.Clip(sh.profiles)
	for _, p := range ports {
		p.Name = s.strings.same(p.Name)
		sh.ports = append(sh.ports, p)
	}
	sh.ports = slices.Clip(sh.ports)
	if have == nil {
		s.shapes[hash] = sh
	}
	return sh
}

// hash does not depend on the order of labels.
func (s *sharing) hash(labels map[string]string, profiles []string, ports []model.NamedPort) uint64 {
	sum := uint64(len(labels))
	for k, v := range labels {
		sum += maphash.Comparable(s.seed, [2]string{k, v})
	}
	for _, p := range profiles {
		sum = sum*31 + maphash.String(s.seed, p)
	}
	for _, p := range ports {
		sum = sum*31 + maphash.Comparable(s.seed, p)
	}
	return sum
}

// keep counts an object with the shape, and drop no longer counts one. Nil is no shape.
func (s *sharing) keep(sh *shape) {
	if sh != nil {
		s.mu.Lock()
		sh.refs++
		s.mu.Unlock()
	}
}

func (s *sharing) drop(sh *shape) {
	if sh == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sh.refs--; sh.refs <= 0 && s.shapes[sh.hash] == sh {
		delete(s.shapes, sh.hash)
	}
}

// sweep forgets shapes that no known object has: of objects that came with a list that was not completed, or that
// were known already.
func (s *sharing) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.shapes, func(_ uint64, sh *shape) bool { return sh.refs <= 0 })
}

// recent finds strings again that were used lately, so that each is in memory once: of a node, a namespace, a label.
// An entry that has not been used for long is dropped, at the latest when maxRecent others came twice.
// Safe for concurrent use.
type recent struct {
	mu          sync.Mutex
	now, before map[string]string
}

const maxRecent = 8192

func (r *recent) same(s string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if have, ok := r.now[s]; ok {
		return have
	}
	have, ok := r.before[s]
	if !ok {
		have = s
	}
	if r.now == nil || len(r.now) >= maxRecent {
		r.before, r.now = r.now, map[string]string{}
	}
	r.now[have] = have
	return have
}
