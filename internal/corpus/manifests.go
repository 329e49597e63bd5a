package corpus

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/model"
)

// Steps are the states that a case's documents lead through: one of an object that was there replaces it. There is at
// least one.
func (c Case) Steps() [][]Document {
	var all [][]Document
	var now []Document
	for _, d := range c.Documents {
		i := slices.IndexFunc(now, func(o Document) bool {
			return o.Kind == d.Kind && o.Namespace == d.Namespace && o.Name == d.Name
		})
		if i < 0 {
			now = append(now, d)
			continue
		}
		all = append(all, now)
		now = slices.Clone(now)
		now[i] = d
	}
	return append(all, now)
}

// WithoutPolicy is what the last of the steps holds beside policy.
func (c Case) WithoutPolicy() []Document {
	all := c.Steps()
	last := slices.Clone(all[len(all)-1])
	return slices.DeleteFunc(last, Document.IsPolicy)
}

// IsPolicy reports whether the manifest is one of a policy.
func (d Document) IsPolicy() bool { return strings.HasSuffix(d.Kind, "NetworkPolicy") }

// Manifest is the documents as one text.
func Manifest(docs []Document) string {
	var b strings.Builder
	for _, d := range docs {
		fmt.Fprintf(&b, "%s\n---\n", bytes.TrimSpace(d.Text))
	}
	return b.String()
}

// SameButForPolicy puts the cases together whose clusters differ in policies only.
func SameButForPolicy(cases []Case) [][]Case {
	var keys []string
	groups := map[string][]Case{}
	for _, c := range cases {
		key := Manifest(c.WithoutPolicy())
		if groups[key] == nil {
			keys = append(keys, key)
		}
		groups[key] = append(groups[key], c)
	}
	var out [][]Case
	for _, key := range keys {
		out = append(out, groups[key])
	}
	return out
}

// Denied are the checks that are to be denied.
func Denied(checks []Check) []Check {
	return slices.DeleteFunc(slices.Clone(checks), func(k Check) bool { return k.Allow })
}

// Endpoints are those that the case's updates leave, those without an address apart.
func (c Case) Endpoints() map[model.EndpointID]*model.Endpoint {
	last := map[model.EndpointID]*model.Endpoint{}
	for _, u := range c.Updates {
		u, ok := u.(model.EndpointUpdate)
		switch {
		case !ok:
		case u.Endpoint == nil || len(u.Endpoint.Addrs) == 0:
			delete(last, u.ID)
		default:
			last[u.ID] = u.Endpoint
		}
	}
	return last
}
