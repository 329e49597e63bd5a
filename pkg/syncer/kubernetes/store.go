package kubernetes

import (
	"cmp"
	"fmt"
	"math"
	"sync"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// store receives the objects of one kind from its Reflector. It passes changes on, and remembers the name, the version
// and the problems of each object. The Reflector calls it from one goroutine at a time; the methods that read may be
// called from any.
type store struct {
	shared  *sharing
	absent  func(namespace, name string) []model.Update
	deliver func([]model.Update)
	noted   func(event storeEvent, objects int) // what happened, after it was delivered
	came    func()                              // an object came after the first list that was not known; may be nil

	version uint64 // of the last list; 0: none

	mu      sync.Mutex
	objects *syncer.Objects[objectKey, record]
	turned  []syncer.Turn          // since takeTurns
	changed map[objectKey]struct{} // objects whose problems have changed since takeFindings
}

type storeEvent uint8

const (
	listSeen storeEvent = iota + 1
	changeSeen
)

// record is kept for each object, so it is to be small.
type record struct {
	version uint32 // the low bits of the number; 0: not known
	uid     uint32 // hashOf; 0: not known
	shape   *shape // of the version that is in force
}

// replacedBy reports whether another object is known to have the name now: the one on record was deleted.
func (r record) replacedBy(o *object) bool { return r.uid != 0 && o.uid != 0 && r.uid != o.uid }

func newStore(shared *sharing, absent func(namespace, name string) []model.Update, deliver func([]model.Update), noted func(storeEvent, int)) *store {
	return &store{shared: shared, absent: absent, deliver: deliver, noted: noted,
		objects: syncer.NewObjects[objectKey, record](), changed: map[objectKey]struct{}{}}
}

// Add implements cache.ReflectorStore.
func (s *store) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s *store) Update(obj any) error {
	o, err := objectOf(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	_, known := s.objects.Get(o.name)
	us := s.put(nil, o)
	s.mu.Unlock()
	s.deliver(us)
	s.noted(changeSeen, s.len())
	s.noteCame(!known)
	return nil
}

// noteCame calls came for an object that was not known.
func (s *store) noteCame(came bool) {
	if came && s.came != nil {
		s.came()
	}
}

// Delete implements cache.ReflectorStore.
func (s *store) Delete(obj any) error {
	o, err := objectOf(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	us := s.remove(nil, o.name)
	s.mu.Unlock()
	s.deliver(us)
	s.noted(changeSeen, s.len())
	return nil
}

// Replace implements cache.ReflectorStore. Objects that the list does not contain are gone, and objects with the known
// version have not changed. A list that is older than the last one, or the first one after distrust, comes from a server that lost its
// history: then versions are not compared.
//
// Deletions go last: the consumer may flush after a part of many updates, and a policy that was renamed must not be missing then.
func (s *store) Replace(list []any, version string) error {
	listed := make(map[objectKey]*object, len(list))
	for _, obj := range list {
		o, err := objectOf(obj)
		if err != nil {
			return err
		}
		listed[o.name] = o
	}
	s.mu.Lock()
	v := number(version)
	trusted := v != 0 && v >= s.version
	later, came := s.version != 0, false
	s.version = v
	var us []model.Update
	for name, o := range listed {
		was, ok := s.objects.Get(name)
		came = came || later && !ok
		if !ok || !trusted || was.replacedBy(o) || was.version == 0 || was.version != uint32(number(o.version)) {
			us = s.put(us, o)
			continue
		}
		was.uid = o.uid
		s.objects.Keep(name, was)
	}
	for name := range s.objects.All() {
		if listed[name] == nil {
			us = s.remove(us, name)
		}
	}
	s.objects.Shrink()
	s.mu.Unlock()
	s.shared.sweep()
	s.deliver(us)
	s.noted(listSeen, s.len())
	s.noteCame(came)
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *store) Resync() error { return nil }

// distrust notes that the server has lost the end of its history. It gives the versions that it has lost to other contents, so the next list
// is not compared with what is known.
func (s *store) distrust() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = math.MaxUint64
}

// moved notes that the kind is read in another place from now on, where the same objects may have other UIDs: Calico's API server
// gives them its own.
func (s *store) moved() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, r := range s.objects.All() {
		r.uid = 0
		s.objects.Keep(name, r)
	}
}

// forget removes every object: the kind is gone.
func (s *store) forget() {
	s.mu.Lock()
	var us []model.Update
	for name := range s.objects.All() {
		us = s.remove(us, name)
	}
	s.version = 0
	s.mu.Unlock()
	s.deliver(us)
}

func objectOf(obj any) (*object, error) {
	if o, ok := obj.(*object); ok {
		return o, nil
	}
	return nil, fmt.Errorf("%T among converted objects", obj)
}

// put records the newest version of an object, and appends the updates to send. An object that takes the place of another one
// never had that one's good versions (semantics D-1). Its predecessor is gone, whether or not the watch was up to see that.
func (s *store) put(us []model.Update, o *object) []model.Update {
	was, _ := s.objects.Get(o.name)
	now := record{version: uint32(number(o.version)), uid: o.uid, shape: o.shape}
	if !o.ok && was.replacedBy(o) {
		us, was = s.remove(us, o.name), record{}
	}
	s.turn(o.name, o.problems)
	if !o.ok {
		now.shape = was.shape
		s.objects.Reject(o.name, now, o.problems)
		return us
	}
	s.objects.Accept(o.name, now, o.problems)
	s.shared.keep(now.shape)
	s.shared.drop(was.shape)
	return append(us, o.updates...)
}

func (s *store) remove(us []model.Update, name objectKey) []model.Update {
	was, known := s.objects.Get(name)
	if !known {
		return us
	}
	s.turn(name, nil)
	s.objects.Remove(name)
	s.shared.drop(was.shape)
	return append(us, s.absent(name.namespace, name.name)...)
}

// turn replaces the problems of an object.
func (s *store) turn(name objectKey, now []validate.Problem) {
	was := s.objects.Wrong(name)
	s.turned = append(s.turned, syncer.Turns(was, now)...)
	if len(was)+len(now) > 0 {
		s.changed[name] = struct{}{}
	}
}

// drainFindings returns the present problems of the objects whose problems have changed since the last call.
func (s *store) drainFindings(kind int) []syncer.Findings {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []syncer.Findings
	for name := range s.changed {
		subject := fmt.Sprintf("%02d %s/%s", kind, name.namespace, name.name)
		all = append(all, syncer.Findings{Subject: subject, Problems: s.objects.ProblemsOf(name)})
	}
	clear(s.changed)
	return all
}

// drainTurns returns how problems changed since the last time.
func (s *store) drainTurns() []syncer.Turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.turned
	s.turned = nil
	return all
}

func (s *store) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects.Len()
}

// allProblems returns the present problems, by namespace and name.
func (s *store) allProblems() []validate.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects.Problems(func(a, b objectKey) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
}
