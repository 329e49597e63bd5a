package validate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FelixConfigurationObject is a FelixConfiguration of crd.projectcalico.org/v1 or projectcalico.org/v3, which have the
// same fields. Those of its spec are not decoded: most are not used here, and newer versions have more.
type FelixConfigurationObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              map[string]json.RawMessage `json:"spec"`
}

const (
	felixNodeSelector = "nodeSelector"
	felixDefault      = "default"
	felixNodePrefix   = "node."
)

// FelixConfiguration returns the configuration with every field of the spec as text, whether it is used here or not.
// pkg/config decides which fields are used, and whether their values are valid. An invalid nodeSelector rejects the object: the
// nodes that it is for are not known.
func FelixConfiguration(o *FelixConfigurationObject) (model.ConfigurationUpdate, []Problem, bool) {
	rep := Report{ref: Ref{Kind: "FelixConfiguration", Name: o.Name}}
	c := &model.Configuration{Values: map[string]string{}}
	if !o.CreationTimestamp.IsZero() {
		c.Created = o.CreationTimestamp.Unix()
	}
	for _, field := range slices.Sorted(maps.Keys(o.Spec)) {
		if field == felixNodeSelector {
			continue
		}
		text, ok, err := fieldText(o.Spec[field])
		if err != nil {
			rep.Add(Rejected, "spec."+field, "%v", err)
		} else if ok {
			c.Values[field] = text
		}
	}
	c.NodeSelector = rep.nodeSelector(o)
	if !rep.OK() {
		return model.ConfigurationUpdate{}, rep.Done(), false
	}
	return model.ConfigurationUpdate{Name: o.Name, Configuration: c}, rep.Done(), true
}

// nodeSelector returns nil for an object that needs none, or has none.
func (r *Report) nodeSelector(o *FelixConfigurationObject) *selector.Selector {
	const path = "spec." + felixNodeSelector
	raw, ok := o.Spec[felixNodeSelector]
	var text string
	if ok {
		if err := json.Unmarshal(raw, &text); err != nil {
			r.Add(Rejected, path, "want a selector, in quotes")
			return nil
		}
	}
	everywhere := o.Name == felixDefault || strings.HasPrefix(o.Name, felixNodePrefix)
	switch {
	case everywhere && text != "":
		r.Add(Warning, path, "ignored: the name %s says which nodes the object is for", o.Name)
		return nil
	case everywhere:
		return nil
	case text == "":
		r.Add(Warning, path, "without a nodeSelector, only objects named default or node.NODE apply to any node")
		return nil
	}
	s, err := selector.ParseLong(text)
	if err != nil {
		r.Add(Rejected, path, "%v", err)
		return nil
	}
	return s
}

// fieldText is the text of a field as model.Configuration has it; not ok: it is null.
func fieldText(raw json.RawMessage) (text string, ok bool, err error) {
	switch raw = bytes.TrimSpace(raw); {
	case len(raw) == 0 || string(raw) == "null":
		return "", false, nil
	case raw[0] == '[':
		var items []json.RawMessage
		if err := json.Unmarshal(raw, &items); err != nil {
			return "", false, fmt.Errorf("cannot be decoded: %w", err)
		}
		parts := make([]string, 0, len(items))
		for _, item := range items {
			parts = append(parts, scalarText(item))
		}
		return strings.Join(parts, ","), true, nil
	case raw[0] == '{':
		var entries map[string]json.RawMessage
		if err := json.Unmarshal(raw, &entries); err != nil {
			return "", false, fmt.Errorf("cannot be decoded: %w", err)
		}
		parts := make([]string, 0, len(entries))
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			parts = append(parts, key+"="+scalarText(entries[key]))
		}
		return strings.Join(parts, ","), true, nil
	}
	return scalarText(raw), true, nil
}

// scalarText is a string as it is, and anything else as JSON has it, without spaces.
func scalarText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil && string(raw) != "null" {
		return text
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return string(raw)
	}
	return b.String()
}
