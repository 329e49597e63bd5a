package config

import "slices"

// Value is the value in force of one setting.
type Value struct {
	Setting string
	Text    string
	Source  string // "--log-level", "/etc/margay/margay.yaml line 3", "FelixConfiguration default, field logSeverityScreen"
	Effect  Effect // of a change
	// Overridden are the values of the layers below, the highest first; the last is the built-in one.
	Overridden []Overridden
}

// Overridden is a value that another one has been put over.
type Overridden struct{ Text, Source string }

// Values are all settings' in the order of their names. They are the caller's.
func (l *Layers) Values() []Value {
	list := make([]Value, 0, len(settings))
	for _, s := range settings {
		now := l.state.inForce(s)
		v := Value{Setting: s.Name, Text: now.text, Source: now.source, Effect: s.Effect}
		below := l.state.values[s.Name]
		for _, o := range slices.Backward(below[:len(below)-1]) {
			v.Overridden = append(v.Overridden, Overridden{o.text, o.source})
		}
		list = append(list, v)
	}
	return list
}
