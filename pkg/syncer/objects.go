package syncer

import (
	"iter"
	"maps"
	"slices"

	"github.com/margay-project/margay/pkg/validate"
)

// Objects remembers which version of each object of a datastore is in force (semantics D-1). A valid version takes the
// place of the one before it. A version that is not valid is a problem; the version in force before it, if any, stays
// in force. When the object is deleted, both are gone.
//
// K names objects, and V is what a source remembers of each. Not safe for concurrent use.
type Objects[K comparable, V any] struct {
	known   map[K]V
	faulted map[K]fault // objects whose newest version has problems or is not valid
}

// fault describes the newest version of an object, if it has problems.
type fault struct {
	problems []validate.Problem
	invalid  bool // the newest version is not used
	inForce  bool // some version is
}

// NewObjects returns the memory of a datastore without objects.
func NewObjects[K comparable, V any]() *Objects[K, V] {
	return &Objects[K, V]{known: map[K]V{}, faulted: map[K]fault{}}
}

// Accept notes that the newest version of an object is valid, and so in force. It may have problems that do not keep it
// from being used.
func (o *Objects[K, V]) Accept(k K, v V, problems []validate.Problem) {
	o.known[k] = v
	delete(o.faulted, k)
	if len(problems) > 0 {
		o.faulted[k] = fault{problems: problems, inForce: true}
	}
}

// Reject notes that the newest version of an object is not valid, and why. v replaces the remembered value.
func (o *Objects[K, V]) Reject(k K, v V, problems []validate.Problem) {
	o.faulted[k] = fault{problems: problems, invalid: true, inForce: o.InForce(k)}
	o.known[k] = v
}

// Keep replaces the remembered value of a known object, and changes nothing else.
func (o *Objects[K, V]) Keep(k K, v V) { o.known[k] = v }

// Remove forgets an object that is gone.
func (o *Objects[K, V]) Remove(k K) {
	delete(o.known, k)
	delete(o.faulted, k)
}

// Get returns the remembered value of an object, valid or not.
func (o *Objects[K, V]) Get(k K) (v V, known bool) {
	v, known = o.known[k]
	return v, known
}

// InForce reports whether some version of an object is in force.
func (o *Objects[K, V]) InForce(k K) bool {
	f, faulted := o.faulted[k]
	_, known := o.known[k]
	return known && (!faulted || f.inForce)
}

// Wrong returns the problems of the newest version of an object, without their consequences. The slice must not be
// changed.
func (o *Objects[K, V]) Wrong(k K) []validate.Problem { return o.faulted[k].problems }

// Len returns the number of objects, valid or not.
func (o *Objects[K, V]) Len() int { return len(o.known) }

// LenInForce returns the number of objects of which a version is in force.
func (o *Objects[K, V]) LenInForce() int {
	n := len(o.known)
	for _, f := range o.faulted {
		if !f.inForce {
			n--
		}
	}
	return n
}

// All ranges over the objects, valid or not, and their remembered values, in no order. The current object may be
// removed, or its value replaced.
func (o *Objects[K, V]) All() iter.Seq2[K, V] { return maps.All(o.known) }

// Shrink gives memory back that objects had that are gone: maps never do so themselves.
func (o *Objects[K, V]) Shrink() { o.known = maps.Clone(o.known) }

// Problems returns everything that is wrong now, object by object in the order of compare.
func (o *Objects[K, V]) Problems(compare func(a, b K) int) []validate.Problem {
	var all []validate.Problem
	for _, k := range slices.SortedFunc(maps.Keys(o.faulted), compare) {
		all = append(all, o.ProblemsOf(k)...)
	}
	return all
}

// ProblemsOf returns everything that is wrong now with one object. The slice may be the one that Accept or Reject was given,
// and must not be changed: tenants can make very many problems, and these need no second copy.
func (o *Objects[K, V]) ProblemsOf(k K) []validate.Problem {
	f := o.faulted[k]
	if !f.invalid || !f.inForce {
		return f.problems
	}
	all := slices.Clone(f.problems)
	for i, p := range all {
		all[i] = StaysInForce(p)
	}
	return all
}

// StaysInForce returns a problem of a version that is not valid, while the last good version of the object is in force.
func StaysInForce(p validate.Problem) validate.Problem {
	if p.Severity == validate.Rejected {
		p.Reason += "; the last good version stays in force"
	}
	return p
}
