package etcd

import (
	"fmt"
	"hash/maphash"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/validate"
)

const (
	// root is what the keys of Calico's objects begin with. PLURAL/NAME or PLURAL/NAMESPACE/NAME follows.
	root = "/calico/resources/v3/projectcalico.org/"
	// readyKey is of the ClusterInformation that says whether the datastore may be read.
	readyKey = root + "clusterinformations/default"

	// maxKey bounds keys in bytes, and maxValue values: etcd's own limit of a request unless it is raised. Names are at
	// most 253 bytes and namespaces 63.
	maxKey, maxValue = 512, 3 << 19
)

// stored is the group and version that objects in etcd have.
var stored = schema.GroupVersion{Group: "projectcalico.org", Version: "v3"}

// objectKey names an object.
type objectKey struct {
	kind            int // index of layout.kinds
	namespace, name string
}

// layout is which keys are of which kinds.
type layout struct {
	kinds    []kinds.Kind
	byPlural map[string]int
	seed     maphash.Seed
}

// newLayout returns the layout of those of all kinds that are kept in etcd, and that are read or are policy.
func newLayout(all []kinds.Kind) *layout {
	l := &layout{byPlural: map[string]int{}, seed: maphash.MakeSeed()}
	for _, k := range all {
		if slices.Contains(k.Versions, stored) && (k.IsRead() || k.Policy) {
			l.byPlural[k.Resource] = len(l.kinds)
			l.kinds = append(l.kinds, k)
		}
	}
	return l
}

// object is which object a key names. Not ours: of no kind that concerns policy. A reason says why a key of one of the
// kinds names no object; the objectKey is of this key alone all the same.
func (l *layout) object(key string) (o objectKey, ours bool, reason string) {
	plural, rest, _ := strings.Cut(strings.TrimPrefix(key, root), "/")
	kind, ours := l.byPlural[plural]
	if !ours || !strings.HasPrefix(key, root) {
		return objectKey{}, false, ""
	}
	if len(key) > maxKey {
		name := fmt.Sprintf("%s... (hash %x)", strings.ToValidUTF8(rest[:64], "?"), maphash.String(l.seed, key))
		return objectKey{kind: kind, name: name}, true, fmt.Sprintf("the key has %d bytes, more than %d", len(key), maxKey)
	}
	parts := strings.Split(rest, "/")
	want := "PLURAL/NAME"
	if l.kinds[kind].Namespaced {
		want = "PLURAL/NAMESPACE/NAME"
	}
	if len(parts) != strings.Count(want, "/") || slices.Contains(parts, "") {
		return objectKey{kind: kind, name: rest}, true, fmt.Sprintf("the key %q names no object, want %s%s", key, root, want)
	}
	o = objectKey{kind: kind, name: unescaped(parts[len(parts)-1])}
	if l.kinds[kind].Namespaced {
		o.namespace = parts[0]
	}
	return o, true, ""
}

// unescaped is a part of a key in which some writers put %2F for a slash. No other part has a percent sign.
func unescaped(part string) string {
	if name, err := url.PathUnescape(part); err == nil {
		return name
	}
	return part
}

// ref names an object in problems.
func (l *layout) ref(o objectKey) validate.Ref {
	return validate.Ref{Kind: l.kinds[o.kind].Ref, Namespace: o.namespace, Name: o.name}
}

// subject names an object among the findings of the stream: in the order of kinds, namespaces and names.
func (l *layout) subject(o objectKey) string {
	return fmt.Sprintf("%02d %s/%s", o.kind, o.namespace, o.name)
}
