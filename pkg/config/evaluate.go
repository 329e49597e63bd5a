package config

import (
	"fmt"
	"maps"
	"slices"
)

// builtIn is the source of a value that no layer sets.
const builtIn = "built-in default"

// state is the outcome of an evaluation.
type state struct {
	config   Config
	values   map[string][]given // of each setting, the lowest layer first; the last is in force
	problems []Problem
}

// Problem is something in the datastore's configuration that is not used as it is written.
type Problem struct {
	Object string // name of the FelixConfiguration
	Field  string // of its spec
	Reason string // one line
	// Ignored: the value is not used at all; otherwise it is, in part.
	Ignored bool
}

// String is one line that names object, field and reason.
func (p Problem) String() string { return felixSource(p.Object, p.Field) + " " + p.Reason }

func felixSource(object, field string) string {
	return fmt.Sprintf("FelixConfiguration %s, field %s", object, field)
}

// evaluate computes the configuration in force.
func (l *Layers) evaluate() Change {
	e := evaluation{layers: l, kept: map[keptKey]given{}, values: map[string][]given{}}
	builtInValues := Defaults()
	builtInValues.Node = l.host
	for _, s := range settings {
		e.put(s, given{s.of(&builtInValues), builtIn})
	}
	e.datastore(l.applying())
	for _, layer := range []map[string]given{l.file, l.env, l.flags} {
		for _, s := range settings {
			if v, ok := layer[s.Name]; ok {
				e.put(s, v)
			}
		}
	}
	before := l.state.config
	l.kept, l.state = e.kept, state{config: Defaults(), values: e.values, problems: e.report()}
	for _, s := range settings {
		l.state.inForce(s).set(&l.state.config)
	}
	return Between(before, l.state.config)
}

func (s *state) inForce(setting *Setting) given {
	values := s.values[setting.Name]
	return values[len(values)-1]
}

// evaluation is one in the making.
type evaluation struct {
	layers *Layers
	kept   map[keptKey]given
	values map[string][]given
	wrong  []wrong
}

// wrong is a problem whose consequence is known only when all layers are.
type wrong struct {
	Problem
	setting *Setting // nil: none is touched
}

func (e *evaluation) put(s *Setting, v given) { e.values[s.Name] = append(e.values[s.Name], v) }

// datastore puts the layers of the objects named.
func (e *evaluation) datastore(names []string) {
	merged := felixValues{}
	for _, name := range names {
		own := maps.Clone(e.layers.objects[name].Values)
		maps.DeleteFunc(own, func(_, text string) bool { return text == "" })
		maps.Copy(merged, own)
		for _, s := range settings {
			for _, field := range s.Felix {
				if own[field] != "" {
					e.fromFelix(name, field, own[field], s, merged)
					break
				}
			}
		}
		for _, field := range slices.Sorted(maps.Keys(own)) {
			if meant := misspelt(field); meant != "" {
				e.complain(name, field, "is not a known field; is "+meant+" meant?", nil)
			}
		}
	}
	e.unsupported(names, merged)
}

// fromFelix puts the value of a setting that an object has. A value that is not valid is replaced by the one that was valid
// before, or is not put.
func (e *evaluation) fromFelix(object, field, written string, s *Setting, merged felixValues) {
	key := keptKey{object, s.Name}
	v, note, err := readFelix(s, merged)
	if err == nil && s.Name == interfacePrefix {
		err = e.layers.own.closes(v.text)
	}
	if err != nil {
		e.complain(object, field, fmt.Sprintf("%q: %v", written, err), s)
		if old, ok := e.layers.kept[key]; ok {
			e.kept[key] = old
			e.put(s, old)
		}
		return
	}
	if v.set != nil {
		put := given{v, felixSource(object, field)}
		e.kept[key] = put
		e.put(s, put)
	}
	if note != "" {
		e.wrong = append(e.wrong, wrong{Problem: Problem{Object: object, Field: field, Reason: fmt.Sprintf("%q: %s", written, note)}})
	}
}

// readFelix is a setting's value as the datastore has it; without set: it has none.
func readFelix(s *Setting, merged felixValues) (v parsed, note string, err error) {
	felix, err := s.felix(merged)
	if err != nil || felix.text == "" {
		return parsed{}, felix.note, err
	}
	v, err = s.parse(felix.text)
	return v, felix.note, err
}

// unsupported reports values in force that ask for a feature which is not built. The problem is that of the object with
// the value.
func (e *evaluation) unsupported(names []string, merged felixValues) {
	for _, field := range slices.Sorted(maps.Keys(unsupported)) {
		why := asksForMore(field, merged[field])
		if why == "" {
			continue
		}
		for _, name := range slices.Backward(names) {
			if e.layers.objects[name].Values[field] != "" {
				e.complain(name, field, fmt.Sprintf("%q: %s", merged[field], why), nil)
				break
			}
		}
	}
}

func (e *evaluation) complain(object, field, reason string, s *Setting) {
	e.wrong = append(e.wrong, wrong{Problem{Object: object, Field: field, Reason: reason, Ignored: true}, s})
}

// report returns the problems found, each once, with the value in force instead: those of the lowest object first.
func (e *evaluation) report() []Problem {
	var list []Problem
	for _, w := range e.wrong {
		p := w.Problem
		if s := w.setting; s != nil {
			values := e.values[s.Name]
			p.Reason += fmt.Sprintf("; %s stays %s", s.Name, values[len(values)-1].text)
		}
		i := slices.IndexFunc(list, func(o Problem) bool { return o.Object == p.Object && o.Field == p.Field && o.Reason == p.Reason })
		if i < 0 {
			list = append(list, p)
		}
	}
	return list
}
