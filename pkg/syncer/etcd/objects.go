package etcd

import (
	"encoding/json"
	"fmt"
	"hash/maphash"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// objects records, for each object of the datastore, the version in force and the problems of the newest version. It does
// no I/O.
//
// A version is known by the hash of its text. Revisions would not do: a restored datastore uses them again.
type objects struct {
	layout  *layout
	seed    maphash.Seed
	known   *syncer.Objects[objectKey, record]
	counts  []int // known, by kind
	turned  [][]syncer.Turn
	changed map[objectKey]struct{} // objects whose problems have changed since drainFindings
}

// record is kept for each object.
type record struct {
	hash    uint64
	created int64 // as an entry has it
}

// replacedBy reports whether another object is known to have the key now: the one on record was deleted.
func (r record) replacedBy(e entry) bool {
	return r.created != 0 && e.created != 0 && r.created != e.created
}

func newObjects(l *layout) *objects {
	return &objects{layout: l, seed: maphash.MakeSeed(), known: syncer.NewObjects[objectKey, record](),
		counts: make([]int, len(l.kinds)), turned: make([][]syncer.Turn, len(l.kinds)), changed: map[objectKey]struct{}{}}
}

// put records the newest version of the object of an entry, and appends the updates to send. Not ours: the entry is of
// no object that is read. An object that takes the place of another one never had that one's good versions (semantics D-1).
func (o *objects) put(us []model.Update, e entry) (updates []model.Update, k objectKey, ours bool) {
	k, ours, reason := o.layout.object(e.key)
	if !ours {
		return us, k, false
	}
	now := record{hash: o.hash(e), created: e.created}
	was, known := o.known.Get(k)
	another := known && was.replacedBy(e)
	if known && was.hash == now.hash && !another {
		o.known.Keep(k, now)
		return us, k, true
	}
	if !known {
		o.counts[k.kind]++
	}
	updates, problems, ok := []model.Update(nil), []validate.Problem(nil), false
	if reason == "" {
		updates, problems, ok = o.read(k, e)
	} else {
		problems = o.rejected(k, "%s", reason)
	}
	if another && !ok {
		us = o.remove(us, k)
		o.counts[k.kind]++
	}
	o.turn(k, problems)
	if !ok {
		o.known.Reject(k, now, problems)
		return us, k, true
	}
	o.known.Accept(k, now, problems)
	for _, u := range updates {
		us = append(us, model.Pack(u))
	}
	return us, k, true
}

// remove forgets an object that is gone, and appends the updates to send.
func (o *objects) remove(us []model.Update, k objectKey) []model.Update {
	if _, known := o.known.Get(k); !known {
		return us
	}
	sent := o.known.InForce(k)
	o.turn(k, nil)
	o.known.Remove(k)
	o.counts[k.kind]--
	if !sent {
		return us
	}
	return append(us, o.layout.kinds[k.kind].Absent(k.namespace, k.name)...)
}

// moved notes that the datastore has another history of writes from now on: revisions before and after cannot be compared.
func (o *objects) moved() {
	for k, r := range o.known.All() {
		r.created = 0
		o.known.Keep(k, r)
	}
}

// read converts a value.
func (o *objects) read(k objectKey, e entry) ([]model.Update, []validate.Problem, bool) {
	kind := o.layout.kinds[k.kind]
	switch {
	case !kind.IsRead():
		return nil, o.rejected(k, "%s %s is not a kind Margay reads, so it is not enforced", stored, kind.Name), false
	case e.tooLarge:
		return nil, o.rejected(k, "the object has more than %d bytes", int64(maxMessage)), false
	case len(e.value) > maxValue:
		return nil, o.rejected(k, "the object has %d bytes, more than %d", len(e.value), maxValue), false
	}
	if reason := mismatch(kind, k, e.value); reason != "" {
		return nil, o.rejected(k, "%s", reason), false
	}
	return kind.ReadStored(e.value, o.layout.ref(k))
}

func (o *objects) rejected(k objectKey, format string, args ...any) []validate.Problem {
	return []validate.Problem{{Ref: o.layout.ref(k), Severity: validate.Rejected, Reason: fmt.Sprintf(format, args...)}}
}

// mismatch says what of an object contradicts its key; empty: nothing.
func mismatch(kind kinds.Kind, k objectKey, value []byte) string {
	var header struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(value, &header); err != nil {
		return fmt.Sprintf("the value is no object in JSON: %.200s", err)
	}
	for _, c := range []struct{ field, has, want string }{
		{"apiVersion", header.APIVersion, stored.String()}, {"kind", header.Kind, kind.Name},
		{"metadata.name", header.Metadata.Name, nameOf(kind, k, header.Metadata.Name)}, {"metadata.namespace", header.Metadata.Namespace, k.namespace},
	} {
		if c.has != c.want && c.has != "" {
			return fmt.Sprintf("%s is %.100q, and the key says %q", c.field, c.has, c.want)
		}
	}
	return ""
}

// nameOf is the name that the object of a key must have; has is the one in its metadata. Some releases of Calico keep a policy of the
// tier default that is called lock under the name default.lock.
func nameOf(kind kinds.Kind, k objectKey, has string) string {
	if kind.Tiered && k.name == "default."+has {
		return has
	}
	return k.name
}

func (o *objects) hash(e entry) uint64 {
	if e.tooLarge {
		return uint64(e.modified) // whatever it says, it cannot be used
	}
	return maphash.Bytes(o.seed, e.value)
}

// turn replaces the problems of an object.
func (o *objects) turn(k objectKey, now []validate.Problem) {
	was := o.known.Wrong(k)
	o.turned[k.kind] = append(o.turned[k.kind], syncer.Turns(was, now)...)
	if len(was)+len(now) > 0 {
		o.changed[k] = struct{}{}
	}
}

// drainTurns returns how problems with objects of a kind changed since the last time.
func (o *objects) drainTurns(kind int) []syncer.Turn {
	all := o.turned[kind]
	o.turned[kind] = nil
	return all
}

// drainFindings returns the present problems of the objects whose problems have changed since the last call.
func (o *objects) drainFindings() []syncer.Findings {
	var all []syncer.Findings
	for k := range o.changed {
		all = append(all, syncer.Findings{Subject: o.layout.subject(k), Problems: o.known.ProblemsOf(k)})
	}
	clear(o.changed)
	return all
}
