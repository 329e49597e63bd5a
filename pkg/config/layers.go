package config

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/model"
)

// Layers are the places that values come from, and what is in force of them. Not safe for concurrent use.
type Layers struct {
	host             string
	file, env, flags map[string]given
	objects          map[string]*model.Configuration
	labels           map[string]string // of this node
	labelled         bool              // labels are known
	kept             map[keptKey]given // values of the datastore that were valid the last time they were looked at
	state            state
	nodeName         string
}

// keptKey is one setting of one object.
type keptKey struct{ object, setting string }

// Change is what an evaluation has changed.
type Change struct {
	Settings []string // names, sorted; nil: nothing
	Effect   Effect   // the strongest of theirs
}

// New evaluates what is known before the datastore is. Warnings are about variables of the environment that nobody
// knows. The error has one line for each value that is not valid, or name that there is not, and says where it is.
func New(local Local) (l *Layers, warnings []string, err error) {
	l = &Layers{host: local.Host, objects: map[string]*model.Configuration{}, kept: map[keptKey]given{}}
	var errs [3]error
	l.flags, errs[0] = local.flags()
	l.env, warnings, errs[1] = local.environment()
	l.file, errs[2] = local.File.read()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, warnings, err
	}
	l.evaluate()
	l.nodeName = l.Config().Node
	return l, warnings, nil
}

// SetFile replaces the file; nil: there is none any more. On an error what it said before stays. The node's name stays
// what it was when the process started.
func (l *Layers) SetFile(f *File) (Change, error) {
	values, err := f.read()
	if err != nil {
		return Change{}, err
	}
	l.file = values
	return l.evaluate(), nil
}

// Apply takes what a datastore delivers; what is no configuration and not this node is passed over.
func (l *Layers) Apply(updates []model.Update) Change {
	changed := false
	for _, u := range updates {
		switch u := u.(type) {
		case model.ConfigurationUpdate:
			changed = true
			if u.Configuration == nil {
				delete(l.objects, u.Name)
				continue
			}
			l.objects[u.Name] = u.Configuration
		case model.NodeUpdate:
			if u.Name != l.nodeName {
				continue
			}
			changed = true
			l.labels, l.labelled = nil, u.Node != nil
			if u.Node != nil {
				l.labels = u.Node.Labels
			}
		}
	}
	if !changed {
		return Change{}
	}
	return l.evaluate()
}

// Config is what is in force.
func (l *Layers) Config() Config { return l.state.config }

// Problems are what is wrong with the datastore's configuration of this node, in a fixed order. They are the caller's.
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
