package directory

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// catalog knows which files describe which objects, and which version of each object is in force. It does no I/O.
//
// Of one object, of files that still name it, the first file in path order counts, and in a file the first document; but
// Calico's objects come before those of Kubernetes that stand for the same. A document that became invalid
// is represented by the last good version that its file gave; if there never was one, the next file may take over, and
// if no file has a good version the object stays as it was last in force (semantics D-1).
type catalog struct {
	files   map[string]*manifest
	claims  map[objectName][]*claim                         // in order of preference
	objects *syncer.Objects[objectName, *validate.Document] // by the version that is in force; nil: none is
	dirty   map[objectName]struct{}                         // claims changed since the last flush
	faults  map[string][]validate.Problem                   // of files that have any, by path, as of the last flush
	stale   map[string]struct{}                             // files that may have others since
}

// objectName names an object. Objects of different kinds that stand for the same share a name: see nameOfRef.
type objectName struct{ kind, namespace, name string }

// nameOfRef is the name of an object. A WorkloadEndpoint stands for the endpoint of a Pod of its name, and Profiles kns.NAME
// and ksa.NAMESPACE.NAME for what Namespaces and ServiceAccounts give their pods. Both groups have Nodes.
func nameOfRef(ref validate.Ref) objectName {
	switch ref.Kind {
	case "WorkloadEndpoint":
		return objectName{"Pod", ref.Namespace, ref.Name}
	case "Node.projectcalico.org":
		return objectName{"Node", "", ref.Name}
	case "Profile":
		if namespace, ok := model.NamespaceOfProfile(ref.Name); ok {
			return objectName{"Namespace", "", namespace}
		}
		if namespace, name, ok := model.ServiceAccountOfProfile(ref.Name); ok {
			return objectName{"ServiceAccount", namespace, name}
		}
	}
	return objectName{ref.Kind, ref.Namespace, ref.Name}
}

// manifest is what one file said when it was read last.
type manifest struct {
	path     string
	claims   []*claim           // in the order of the file
	unnamed  []validate.Problem // of the file itself and of documents that do not say which object they are
	withheld int                // claims kept from earlier only because of unnamed
}

// claim is the mention of one object in one file.
type claim struct {
	object   objectName
	path     string
	index    int          // position in the manifest
	ref      validate.Ref // where it was seen last
	good     *validate.Document
	invalid  bool // good, if any, is of an earlier reading
	kept     bool // the file does not say it any more, which is not believed (yet); any other claim is preferred
	problems []validate.Problem
}

func newCatalog() *catalog {
	return &catalog{
		files:   map[string]*manifest{},
		claims:  map[objectName][]*claim{},
		objects: syncer.NewObjects[objectName, *validate.Document](),
		dirty:   map[objectName]struct{}{},
		faults:  map[string][]validate.Problem{},
		stale:   map[string]struct{}{},
	}
}

// put records the objects of a file. Objects that it no longer has are kept unless the loss is believed; it reports whether
// there is any.
func (c *catalog) put(path string, docs []validate.Document, believed bool) (kept bool) {
	old := c.files[path]
	m := &manifest{path: path}
	mentioned := map[objectName]bool{}
	for i := range docs {
		doc := &docs[i]
		if doc.Ref.Kind == "" || doc.Ref.Name == "" {
			m.unnamed = append(m.unnamed, doc.Problems...)
			continue
		}
		cl := &claim{object: old.nameOf(doc), path: path, ref: doc.Ref, problems: doc.Problems, good: doc}
		if !doc.OK {
			cl.good, cl.invalid = old.lastGood(cl.object), true
		}
		mentioned[cl.object] = true
		m.claims = append(m.claims, cl)
	}
	if old != nil && (len(m.unnamed) > 0 || !believed) {
		for _, cl := range old.claims {
			if mentioned[cl.object] {
				continue
			}
			earlier := *cl
			m.claims = append(m.claims, &earlier)
			if len(m.unnamed) > 0 {
				m.withheld++ // as long as the file is broken
			} else {
				earlier.kept, kept = true, true
			}
		}
	}
	c.replace(path, m)
	return kept
}

// keep records that a file says nothing any more, which is not believed yet.
func (c *catalog) keep(path string) {
	m := &manifest{path: path}
	if old := c.files[path]; old != nil {
		for _, cl := range old.claims {
			earlier := *cl
			earlier.kept = true
			m.claims = append(m.claims, &earlier)
		}
	}
	c.replace(path, m)
}

// empty records that a file has become empty, which is never believed.
func (c *catalog) empty(path string, p validate.Problem) {
	c.keep(path)
	m := c.files[path]
	m.unnamed, m.withheld = []validate.Problem{p}, len(m.claims)
}

// fail records that a file is there but cannot be read: everything it said stays.
func (c *catalog) fail(path string, p validate.Problem) {
	m := &manifest{path: path, unnamed: []validate.Problem{p}}
	if old := c.files[path]; old != nil {
		m.claims = old.claims
		m.withheld = len(m.claims)
	}
	c.replace(path, m)
}

// remove records that a file is gone.
func (c *catalog) remove(path string) { c.replace(path, nil) }

// replace puts m, which may be nil, in the place of the file's manifest.
func (c *catalog) replace(path string, m *manifest) {
	c.stale[path] = struct{}{}
	if old := c.files[path]; old != nil {
		for _, cl := range old.claims {
			c.dirty[cl.object] = struct{}{}
			rest := slices.DeleteFunc(c.claims[cl.object], func(other *claim) bool { return other == cl })
			c.claims[cl.object] = rest
			if len(rest) == 0 {
				delete(c.claims, cl.object)
			}
		}
		delete(c.files, path)
	}
	if m == nil {
		return
	}
	c.files[path] = m
	for i, cl := range m.claims {
		cl.index = i
		c.dirty[cl.object] = struct{}{}
		c.claims[cl.object] = append(c.claims[cl.object], cl)
		slices.SortFunc(c.claims[cl.object], func(a, b *claim) int {
			return cmp.Or(cmp.Compare(later(a), later(b)), cmp.Compare(derived(a), derived(b)), cmp.Compare(a.path, b.path), cmp.Compare(a.index, b.index))
		})
	}
}

// later puts kept claims after all others.
func later(cl *claim) int {
	if cl.kept {
		return 1
	}
	return 0
}

// derived puts objects of Kubernetes after those of Calico that stand for the same.
func derived(cl *claim) int {
	switch cl.ref.Kind {
	case "WorkloadEndpoint", "Profile", "Node.projectcalico.org":
		return 0
	}
	return 1
}

// nameOf returns the object a document is about. A document that is not usable may have lost its namespace; then it is
// the object of that kind and name that the file had before.
func (m *manifest) nameOf(doc *validate.Document) objectName {
	n := nameOfRef(doc.Ref)
	if doc.OK || n.namespace != "" || m == nil {
		return n
	}
	for _, cl := range m.claims {
		if cl.object.kind == n.kind && cl.object.name == n.name {
			return cl.object
		}
	}
	return n
}

// lastGood returns the last good version of an object that the file gave, or nil.
func (m *manifest) lastGood(n objectName) *validate.Document {
	if m == nil {
		return nil
	}
	for _, cl := range m.claims {
		if cl.object == n && cl.good != nil {
			return cl.good
		}
	}
	return nil
}

// winner returns the claim whose version counts, or nil if no claim has a good one.
func (c *catalog) winner(n objectName) *claim {
	for _, cl := range c.claims[n] {
		if cl.good != nil {
			return cl
		}
	}
	return nil
}

// flush returns the changes since the last flush, deletions last.
func (c *catalog) flush() []model.Update {
	var gone, changed []model.Update
	names := slices.SortedFunc(maps.Keys(c.dirty), func(a, b objectName) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
	for _, n := range names {
		before, _ := c.objects.Get(n)
		switch w := c.winner(n); {
		case w != nil:
			c.objects.Accept(n, w.good, nil)
		case len(c.claims[n]) > 0:
			c.objects.Reject(n, before, nil) // each claim has its own problems
		default:
			c.objects.Remove(n)
		}
		now, _ := c.objects.Get(n)
		if before != now {
			g, ch := difference(before, now)
			gone, changed = append(gone, g...), append(changed, ch...)
		}
	}
	c.review()
	clear(c.dirty)
	return syncer.DeletionsLast(changed, gone)
}

// review finds the problems of the files that have changed, and of those that mention the same objects.
func (c *catalog) review() {
	for n := range c.dirty {
		for _, cl := range c.claims[n] {
			c.stale[cl.path] = struct{}{}
		}
	}
	for path := range c.stale {
		delete(c.faults, path)
		if c.files[path] == nil {
			continue
		}
		if problems := c.problemsIn(path); len(problems) > 0 {
			c.faults[path] = problems
		}
	}
	clear(c.stale)
}

// difference returns what to send when one version of an object takes the place of another; nil is no version.
func difference(before, now *validate.Document) (gone, changed []model.Update) {
	old := map[model.Key]model.Update{}
	if before != nil {
		for _, u := range before.Updates {
			k, _ := model.KeyOf(u)
			old[k] = u
		}
	}
	if now != nil {
		for _, u := range now.Updates {
			k, _ := model.KeyOf(u)
			if was, ok := old[k]; !ok || !reflect.DeepEqual(was, u) {
				changed = append(changed, u)
			}
			delete(old, k)
		}
	}
	if before != nil {
		for _, u := range validate.Withdraw(before.Updates) {
			if k, _ := model.KeyOf(u); old[k] != nil {
				gone = append(gone, u)
			}
		}
	}
	return gone, changed
}

// problems returns everything that was wrong with the files at the last flush, in path order, by line.
func (c *catalog) problems() []validate.Problem {
	var all []validate.Problem
	for _, path := range slices.Sorted(maps.Keys(c.faults)) {
		all = append(all, c.faults[path]...)
	}
	return all
}

// problemsIn returns everything that is wrong with a file, by line.
func (c *catalog) problemsIn(path string) []validate.Problem {
	var all []validate.Problem
	m := c.files[path]
	for _, p := range m.unnamed {
		if m.withheld > 0 {
			p.Reason += fmt.Sprintf("; the last valid objects of the file stay in force (objects: %d)", m.withheld)
		}
		all = append(all, p)
	}
	for _, cl := range m.claims {
		all = append(all, c.problemsOf(cl)...)
	}
	slices.SortStableFunc(all, func(a, b validate.Problem) int { return cmp.Compare(a.Ref.Line, b.Ref.Line) })
	return all
}

func (c *catalog) problemsOf(cl *claim) []validate.Problem {
	if cl.kept {
		return nil // the problem is reported for the file
	}
	problems := slices.Clone(cl.problems)
	w := c.winner(cl.object)
	other := ""
	if w != nil && w != cl {
		other = fmt.Sprintf("; the object at %s:%d is used", w.path, w.ref.Line)
	}
	if !cl.invalid {
		if other != "" && w.ref.Kind != cl.ref.Kind {
			problems = append(problems, validate.Problem{Ref: cl.ref, Severity: validate.Rejected,
				Reason: fmt.Sprintf("stands for the same as %s, which is used", w.ref)})
		} else if other != "" {
			problems = append(problems, validate.Problem{Ref: cl.ref, Severity: validate.Rejected, Reason: "duplicate" + other})
		}
		return problems
	}
	for i := range problems {
		switch {
		case other != "" && problems[i].Severity == validate.Rejected:
			problems[i].Reason += other
		case other == "" && c.objects.InForce(cl.object):
			problems[i] = syncer.StaysInForce(problems[i])
		}
	}
	return problems
}

// places says where the objects in force are written.
func (c *catalog) places() map[model.Key]validate.Ref {
	places := map[model.Key]validate.Ref{}
	for _, doc := range c.objects.All() {
		if doc == nil {
			continue
		}
		for _, u := range doc.Updates {
			if key, present := model.KeyOf(u); present {
				places[key] = doc.Ref
			}
		}
	}
	return places
}
