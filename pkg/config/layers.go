package config

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/model"
)

// Layers are the sources of values, and the configuration in force. Not safe for concurrent use.
type Layers struct {
	host             string
	own              ownInterfaces
	file, env, flags map[string]given
	objects          map[string]*model.Configuration
	labels           map[string]string // of this node
	labelled         bool              // labels are known
	kept             map[keptKey]given // values of the datastore that were valid the last time they were looked at
	state            state
	nodeName         string
	// unseen are deletions of objects that a restarted source has not delivered again yet.
	unseen map[model.Key]model.Update
	// fileErr is why the present file is not used; nil: it is.
	fileErr error
	// used are the values of the last file that an agent has run with; see Withdraw.
	used map[string]given
}

// keptKey is one setting of one object.
type keptKey struct{ object, setting string }

// Change is how two configurations differ.
type Change struct {
	Settings []string // names, sorted; nil: not at all
	Effect   Effect   // the strongest of theirs
}

// Between returns the change from one configuration to another.
func Between(from, to Config) Change {
	var c Change
	for _, s := range settings {
		if !s.of(&from).same(&to) {
			c.Settings = append(c.Settings, s.Name)
			c.Effect = max(c.Effect, s.Effect)
		}
	}
	return c
}

// New evaluates the local layers, before the datastore is read. Warnings are about variables of the environment that
// belong to no setting. The error has one line for each value that is not valid or cannot be used here and each unknown name, with its
// source.
func New(local Local) (l *Layers, warnings []string, err error) {
	l = &Layers{host: local.Host, own: ownInterfaces{local.Uplinks, local.Loopbacks}, objects: map[string]*model.Configuration{},
		kept: map[keptKey]given{}}
	var errs [3]error
	l.flags, errs[0] = local.flags()
	l.env, warnings, errs[1] = local.environment()
	l.file, errs[2] = local.File.read()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, warnings, err
	}
	l.evaluate()
	if err := l.check(); err != nil {
		return nil, warnings, err
	}
	l.nodeName, l.used = l.Config().Node, l.file
	return l, warnings, nil
}

// SetFile replaces the file; nil: there is none any more. On an error, also of values that cannot be used together, the values of the last
// valid file stay. The node's name stays as it was when the process started.
func (l *Layers) SetFile(f *File) (Change, error) {
	values, err := f.read()
	l.fileErr = err
	if err != nil {
		return Change{}, err
	}
	before := l.file
	l.file = values
	change := l.evaluate()
	if err := l.check(); err != nil {
		l.file, l.fileErr = before, err
		l.evaluate()
		return Change{}, err
	}
	if change.Effect != Restart {
		l.used = values
	}
	return change, nil
}

// Used says that an agent runs with the present file.
func (l *Layers) Used() { l.used = l.file }

// Withdraw says that no agent can start with the present file, and why. The values of the last file that one has run with are in force from
// here on. It reports whether that changes anything.
func (l *Layers) Withdraw(why error) bool {
	l.file = l.used
	if l.evaluate().Effect == Unchanged {
		return false
	}
	l.fileErr = why
	return true
}

// FileErr is why the present file is not used, so that values of an earlier one apply; nil: it is used.
func (l *Layers) FileErr() error { return l.fileErr }

// Apply adds updates of a datastore; it skips objects that are neither configuration nor this node.
func (l *Layers) Apply(updates []model.Update) Change {
	changed := false
	for _, u := range updates {
		switch u := u.(type) {
		case model.ConfigurationUpdate, model.NodeUpdate:
			changed = l.apply(u) || changed
		case model.InSync:
			changed = l.forgetUnseen() || changed
		}
	}
	if !changed {
		return Change{}
	}
	return l.evaluate()
}

// apply reports whether the update is about anything that counts.
func (l *Layers) apply(u model.Update) bool {
	key, present := model.KeyOf(u)
	delete(l.unseen, key)
	switch u := u.(type) {
	case model.ConfigurationUpdate:
		if present {
			l.objects[u.Name] = u.Configuration
		} else {
			delete(l.objects, u.Name)
		}
		return true
	case model.NodeUpdate:
		if u.Name != l.nodeName {
			return false
		}
		if l.labels, l.labelled = nil, present; present {
			l.labels = u.Node.Labels
		}
		return true
	}
	return false
}

// SourceRestarted says that the source lists everything again. Objects that it has not delivered when it is in sync are gone; until
// then it counts as it did.
func (l *Layers) SourceRestarted() {
	l.unseen = map[model.Key]model.Update{}
	if l.labelled {
		u := model.NodeUpdate{Name: l.nodeName}
		key, _ := model.KeyOf(u)
		l.unseen[key] = u
	}
	for name := range l.objects {
		u := model.ConfigurationUpdate{Name: name}
		key, _ := model.KeyOf(u)
		l.unseen[key] = u
	}
}

// forgetUnseen reports whether there was anything to forget.
func (l *Layers) forgetUnseen() bool {
	gone := l.unseen
	l.unseen = nil
	for _, u := range gone {
		l.apply(u)
	}
	return len(gone) > 0
}

// Config returns the configuration in force.
func (l *Layers) Config() Config { return l.state.config }

// NodeSeen reports whether the datastore has the node that this is.
func (l *Layers) NodeSeen() bool { return l.labelled }

// Problems returns the problems of the datastore's configuration of this node, in a fixed order. The slice is the
// caller's.
func (l *Layers) Problems() []Problem { return slices.Clone(l.state.problems) }

// nodePrefix starts the names of objects for one node.
const nodePrefix = "node."

// applying are the names of the objects that count for this node, the lowest first.
func (l *Layers) applying() []string {
	var names []string
	if l.objects["default"] != nil {
		names = append(names, "default")
	}
	if name := l.selected(); name != "" {
		names = append(names, name)
	}
	if name := nodePrefix + l.nodeName; l.objects[name] != nil {
		names = append(names, name)
	}
	return names
}

// selected is the oldest object whose selector selects this node, the one of the lowest name if there are several.
// Without labels of the node there is none.
func (l *Layers) selected() string {
	if !l.labelled {
		return ""
	}
	best := ""
	for _, name := range slices.Sorted(maps.Keys(l.objects)) {
		o := l.objects[name]
		if name == "default" || strings.HasPrefix(name, nodePrefix) || o.NodeSelector == nil || !o.NodeSelector.Matches(labelMap(l.labels)) {
			continue
		}
		if best == "" || cmp.Less(o.Created, l.objects[best].Created) {
			best = name
		}
	}
	return best
}

// labelMap are labels as selectors read them.
type labelMap map[string]string

// Get implements selector.Labels.
func (m labelMap) Get(name string) (string, bool) {
	v, ok := m[name]
	return v, ok
}
