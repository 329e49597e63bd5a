package directory

import (
	"iter"
	"slices"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// rivals are the objects that may mean the same as an object of another kind: the Profile kns.shop is what the Namespace
// shop means, too. As long as there are any, what they mean counts, and what the other objects mean counts again when they
// are gone. There are few or none in most folders, which then pay nothing. The zero value has none.
type rivals struct {
	inForce map[objectName]struct{}
	touched map[model.Key]struct{} // keys whose objects changed, while there were any
}

// isRival reports whether objects of a kind count before those of other kinds.
func isRival(kind string) bool {
	return kind == "Profile" || kind == "WorkloadEndpoint" || kind == "Node.projectcalico.org"
}

// note records what changed by one object.
func (r *rivals) note(n objectName, present bool, updates ...[]model.Update) {
	rival := isRival(n.kind)
	if !rival && len(r.inForce) == 0 {
		return
	}
	if r.inForce == nil {
		r.inForce, r.touched = map[objectName]struct{}{}, map[model.Key]struct{}{}
	}
	if rival && present {
		r.inForce[n] = struct{}{}
	} else if rival {
		delete(r.inForce, n)
	}
	for _, some := range updates {
		for _, u := range some {
			key, _ := model.KeyOf(u)
			r.touched[key] = struct{}{}
		}
	}
}

// judge replaces the updates of the keys noted by what the objects mean now, and forgets the keys.
func (r *rivals) judge(updates []model.Update, objects iter.Seq2[objectName, *validate.Document]) []model.Update {
	if len(r.touched) == 0 {
		return updates
	}
	type meaning struct {
		of objectName
		u  model.Update
	}
	now := map[model.Key]meaning{}
	for n, doc := range objects {
		if doc == nil {
			continue
		}
		for _, u := range doc.Updates {
			key, present := model.KeyOf(u)
			if _, ok := r.touched[key]; !ok || !present {
				continue
			}
			if before, ok := now[key]; !ok || isRival(n.kind) && !isRival(before.of.kind) {
				now[key] = meaning{n, u}
			}
		}
	}
	sent := map[model.Key]bool{}
	updates = slices.DeleteFunc(updates, func(u model.Update) bool {
		key, present := model.KeyOf(u)
		_, other := now[key]
		return other && !present // it is not gone
	})
	for i, u := range updates {
		key, _ := model.KeyOf(u)
		if m, ok := now[key]; ok {
			updates[i], sent[key] = m.u, true
		}
	}
	for key, m := range now {
		if !sent[key] {
			updates = append(updates, m.u)
		}
	}
	clear(r.touched)
	return updates
}
