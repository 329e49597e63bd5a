package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Local is the part of the configuration that the machine has: file, environment and flags.
type Local struct {
	Host        string   // the host's name, which is the node's unless another is given
	Uplinks     []string // names of the interfaces by which the node's default routes lead, when the process started
	Loopbacks   []string // names of the loopback interfaces of the node, then
	File        *File    // nil: there is none
	Environment []string // NAME=value, as the system has them; an empty value is the same as none
	Flags       []Flag   // in the order given
}

// File is a file of settings.
type File struct {
	Path string
	Text []byte
	Err  error // why it cannot be read; nil: it can
}

// Flag is one flag that was given.
type Flag struct{ Name, Value string }

// given is a value that some layer has for a setting.
type given struct {
	parsed
	source string
}

// ConfigFile is the path of the file that belongs in Local.File, and whether a user set it: then it must exist.
func (l Local) ConfigFile() (path string, asked bool) {
	for _, f := range l.Flags {
		if f.Name == "config-file" {
			path = f.Value
		}
	}
	if path != "" {
		return path, true
	}
	if path = FromEnvironment(l.Environment, "config-file"); path != "" {
		return path, true
	}
	return Defaults().ConfigFile, false
}

// FromEnvironment is the text that an environment, as NAME=value, has for a setting; empty: none.
func FromEnvironment(environment []string, setting string) string {
	s := find(setting)
	if s == nil {
		return ""
	}
	for _, v := range environment {
		if text, ok := strings.CutPrefix(v, s.Environment()+"="); ok && text != "" {
			return text
		}
	}
	return ""
}

// parse reads the value that a layer has for a setting. subject names source and setting in an error.
func parse(s *Setting, text, source, subject string) (given, error) {
	v, err := s.parse(text)
	if err != nil {
		return given{}, fmt.Errorf("%s %q: %w", subject, text, err)
	}
	return given{v, source}, nil
}

func (l Local) flags() (map[string]given, error) {
	texts := map[string]string{}
	for _, f := range l.Flags {
		if s := find(f.Name); s != nil && s.Repeatable && texts[f.Name] != "" {
			texts[f.Name] += ","
		} else {
			texts[f.Name] = ""
		}
		texts[f.Name] += f.Value
	}
	all := map[string]given{}
	var errs []error
	for _, s := range settings {
		text, ok := texts[s.Name]
		if !ok {
			continue
		}
		source := "--" + s.Name
		v, err := parse(s, text, source, source)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all[s.Name] = v
	}
	return all, errors.Join(errs...)
}

// environment also returns warnings about variables that belong to no setting.
func (l Local) environment() (all map[string]given, warnings []string, err error) {
	all = map[string]given{}
	known := map[string]*Setting{}
	for _, s := range settings {
		known[s.Environment()] = s
	}
	var errs []error
	for _, v := range l.Environment {
		name, text, _ := strings.Cut(v, "=")
		s := known[name]
		switch {
		case text == "" || !strings.HasPrefix(name, EnvironmentPrefix):
		case s != nil:
			source := "environment variable " + name
			v, err := parse(s, text, source, source)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			all[s.Name] = v
		case !serviceLink.MatchString(name):
			warning := "environment variable " + name + ": there is no setting of that name"
			if meant := meantBy(strings.TrimPrefix(name, EnvironmentPrefix)); meant != nil {
				warning += "; is " + meant.Environment() + " meant?"
			}
			warnings = append(warnings, warning)
		}
	}
	errs = append(errs, l.others(all))
	slices.Sort(warnings)
	return all, warnings, errors.Join(errs...)
}

// others adds what variables of other programs set, where there is none of ours.
func (l Local) others(all map[string]given) error {
	var errs []error
	for _, s := range settings {
		for _, other := range s.Others {
			if _, ok := all[s.Name]; ok {
				break
			}
			for _, v := range l.Environment {
				name, text, _ := strings.Cut(v, "=")
				if text == "" || !strings.EqualFold(name, other) {
					continue
				}
				source := "environment variable " + name
				v, err := parse(s, text, source, source)
				errs = append(errs, err)
				all[s.Name] = v
			}
		}
	}
	return errors.Join(errs...)
}

// serviceLink are the variables that a kubelet gives a pod for each service, here of one whose name begins with margay.
var serviceLink = regexp.MustCompile(`^MARGAY_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// read reads a file: a map of settings' names to values.
func (f *File) read() (map[string]given, error) {
	all := map[string]given{}
	if f == nil {
		return all, nil
	}
	if f.Err != nil {
		return nil, f.Err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(f.Text, &doc); err != nil {
		return nil, fmt.Errorf("%s: %s", f.Path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(doc.Content) == 0 {
		return all, nil // nothing, or comments only
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return all, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s line %d: want settings, each as NAME: VALUE", f.Path, root.Line)
	}
	seen := map[string]int{}
	var errs []error
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		source := fmt.Sprintf("%s line %d", f.Path, key.Line)
		if before := seen[key.Value]; before > 0 {
			errs = append(errs, fmt.Errorf("%s: %s is in line %d already", source, key.Value, before))
			continue
		}
		seen[key.Value] = key.Line
		v, err := readEntry(key, value, source)
		if err != nil {
			errs = append(errs, err)
		} else if v.source != "" {
			all[key.Value] = v
		}
	}
	return all, errors.Join(errs...)
}

// readEntry reads one line of a file; without a source: the line has no value.
func readEntry(key, value *yaml.Node, source string) (given, error) {
	s := find(key.Value)
	if s == nil {
		if meant := meantBy(key.Value); meant != nil {
			return given{}, fmt.Errorf("%s: there is no setting %q; is %s meant?", source, key.Value, meant.Name)
		}
		return given{}, fmt.Errorf("%s: there is no setting %q", source, key.Value)
	}
	if s.NotInFile {
		return given{}, fmt.Errorf("%s: %s cannot be set in the file", source, s.Name)
	}
	text, set, ok := fileText(value)
	if !ok {
		return given{}, fmt.Errorf("%s: %s: want one value", source, s.Name)
	}
	if !set {
		return given{}, nil
	}
	return parse(s, text, source, source+": "+s.Name)
}

// fileText is the text of a value: of a list its items joined by commas, of a map key=value joined by commas. Not ok:
// it goes deeper than that. Not set: it is null.
func fileText(n *yaml.Node) (text string, set, ok bool) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yaml.ScalarNode:
		return n.Value, n.Tag != "!!null", true
	case yaml.SequenceNode, yaml.MappingNode:
		var parts []string
		for i, item := range n.Content {
			if item.Kind != yaml.ScalarNode {
				return "", false, false
			}
			if n.Kind == yaml.MappingNode && i%2 == 1 {
				parts[len(parts)-1] += "=" + item.Value
				continue
			}
			parts = append(parts, item.Value)
		}
		return strings.Join(parts, ","), true, true
	}
	return "", false, false
}
