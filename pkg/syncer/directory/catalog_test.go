package directory

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
	"pgregory.net/rapid"
)

func tier(name string, order float64) model.Update {
	return model.TierUpdate{Name: name, Tier: &model.Tier{Order: order, Default: model.Deny}}
}

func noTier(name string) model.Update { return model.TierUpdate{Name: name} }

// good is a valid document whose version is visible in its update.
func good(name string, version float64) validate.Document {
	return validate.Document{Ref: ref(name), Updates: []model.Update{tier(name, version)}, OK: true}
}

func bad(name string) validate.Document {
	p := validate.Problem{Ref: ref(name), Severity: validate.Rejected, Reason: "bad"}
	return validate.Document{Ref: ref(name), Problems: []validate.Problem{p}}
}

// unnamed is a document that nobody can tell the object of.
func unnamed() validate.Document {
	p := validate.Problem{Severity: validate.Rejected, Reason: "not YAML"}
	return validate.Document{Problems: []validate.Problem{p}}
}

func ref(name string) validate.Ref { return validate.Ref{Kind: "Tier", Name: name} }

// Objects of different kinds that stand for the same endpoint or profile replace each other in one way, whatever came first,
// and what is left when one goes is in force.
func TestCatalogKnowsKindsThatStandForTheSame(t *testing.T) {
	profile := func(name, by string) model.Update {
		return model.ProfileUpdate{Name: name, Profile: &model.Profile{Labels: map[string]string{"by": by}}}
	}
	vm := func(by string) model.Update {
		return model.EndpointUpdate{ID: model.WorkloadID("shop", "vm"), Endpoint: &model.Endpoint{Node: by}}
	}
	tests := map[string]struct {
		first, second validate.Ref
		update        func(by string) model.Update
	}{
		"namespace":       {validate.Ref{Kind: "Profile", Name: "kns.shop"}, validate.Ref{Kind: "Namespace", Name: "shop"}, func(by string) model.Update { return profile("kns.shop", by) }},
		"service account": {validate.Ref{Kind: "Profile", Name: "ksa.shop.a.b"}, validate.Ref{Kind: "ServiceAccount", Namespace: "shop", Name: "a.b"}, func(by string) model.Update { return profile("ksa.shop.a.b", by) }},
		"node": {validate.Ref{Kind: "Node.projectcalico.org", Name: "n1"}, validate.Ref{Kind: "Node", Name: "n1"}, func(by string) model.Update {
			return model.NodeUpdate{Name: "n1", Node: &model.Node{Labels: map[string]string{"by": by}}}
		}},
		"pod": {validate.Ref{Kind: "WorkloadEndpoint", Namespace: "shop", Name: "vm"}, validate.Ref{Kind: "Pod", Namespace: "shop", Name: "vm"}, vm},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			doc := func(ref validate.Ref, version string) []validate.Document {
				return []validate.Document{{Ref: ref, OK: true, Updates: []model.Update{tt.update(ref.Kind + version)}}}
			}
			c := newCatalog()
			flush := func(step string, want ...model.Update) {
				t.Helper()
				if diff := cmp.Diff(want, c.flush()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", step, diff)
				}
			}
			c.put("b", doc(tt.second, "1"), true)
			flush("the object of Kubernetes alone", tt.update(tt.second.Kind+"1"))
			c.put("c", doc(tt.first, "1"), true)
			flush("Calico's comes", tt.update(tt.first.Kind+"1"))
			c.put("b", doc(tt.second, "2"), true)
			flush("that of Kubernetes changes")
			if problems := c.problems(); len(problems) != 1 || problems[0].Reason != "stands for the same as "+tt.first.String()+", which is used" {
				t.Errorf("problems: %v", problems)
			}
			c.remove("c")
			flush("Calico's goes", tt.update(tt.second.Kind+"2"))
			if problems := c.problems(); len(problems) != 0 {
				t.Errorf("problems that are left: %v", problems)
			}
		})
	}
}

func TestCatalog(t *testing.T) {
	type updates = []model.Update
	put := func(path string, d ...validate.Document) func(*catalog) {
		return func(c *catalog) { c.put(path, d, true) }
	}
	remove := func(path string) func(*catalog) { return func(c *catalog) { c.remove(path) } }
	fail := func(path string) func(*catalog) {
		return func(c *catalog) { c.fail(path, fileProblem(path, validate.Rejected, errors.New("no"))) }
	}
	tests := []struct {
		name     string
		before   []func(*catalog)
		step     []func(*catalog)
		want     updates
		problems []string
	}{
		{name: "new object",
			step: []func(*catalog){put("a", good("x", 1))},
			want: updates{tier("x", 1)}},
		{name: "never valid is absent",
			step:     []func(*catalog){put("a", bad("x"))},
			problems: []string{"Tier x: rejected: bad"}},
		{name: "unchanged object is not sent",
			before: []func(*catalog){put("a", good("x", 1), good("y", 1))},
			step:   []func(*catalog){put("a", good("x", 1), good("y", 2))},
			want:   updates{tier("y", 2)}},
		{name: "object gone from the file",
			before: []func(*catalog){put("a", good("x", 1), good("y", 1))},
			step:   []func(*catalog){put("a", good("x", 1))},
			want:   updates{noTier("y")}},
		{name: "file gone",
			before: []func(*catalog){put("a", good("x", 1), good("y", 1))},
			step:   []func(*catalog){remove("a")},
			want:   updates{noTier("x"), noTier("y")}},
		{name: "object moves to another file",
			before: []func(*catalog){put("a", good("x", 1))},
			step:   []func(*catalog){remove("a"), put("b", good("x", 1))}},
		{name: "object that became invalid stays",
			before:   []func(*catalog){put("a", good("x", 1), good("y", 1))},
			step:     []func(*catalog){put("a", bad("x"), good("y", 2))},
			want:     updates{tier("y", 2)},
			problems: []string{"Tier x: rejected: bad; the last good version stays in force"}},
		{name: "object that became invalid stays while it moves",
			before:   []func(*catalog){put("a", good("x", 1))},
			step:     []func(*catalog){remove("a"), put("b", bad("x"))},
			problems: []string{"Tier x: rejected: bad; the last good version stays in force"}},
		{name: "invalid object is deleted",
			before: []func(*catalog){put("a", good("x", 1)), put("a", bad("x"))},
			step:   []func(*catalog){put("a")},
			want:   updates{noTier("x")}},
		{name: "invalid object is mended",
			before: []func(*catalog){put("a", good("x", 1)), put("a", bad("x"))},
			step:   []func(*catalog){put("a", good("x", 2))},
			want:   updates{tier("x", 2)}},
		{name: "a document nobody can read keeps what the file gave",
			before:   []func(*catalog){put("a", good("x", 1), good("y", 1), good("z", 1)), put("b", good("w", 1))},
			step:     []func(*catalog){put("a", unnamed(), good("z", 2)), put("b")},
			want:     updates{tier("z", 2), noTier("w")},
			problems: []string{"rejected: not YAML; the last valid objects of the file stay in force (objects: 2)"}},
		{name: "what was kept goes when the file can be read",
			before: []func(*catalog){put("a", good("x", 1), good("y", 1)), put("a", unnamed()), put("a", unnamed())},
			step:   []func(*catalog){put("a", good("x", 1))},
			want:   updates{noTier("y")}},
		{name: "unreadable file keeps everything",
			before:   []func(*catalog){put("a", good("x", 1))},
			step:     []func(*catalog){fail("a")},
			problems: []string{"a: rejected: no; the last valid objects of the file stay in force (objects: 1)"}},
		{name: "unreadable file becomes readable",
			before: []func(*catalog){put("a", good("x", 1), good("y", 1)), fail("a")},
			step:   []func(*catalog){put("a", good("y", 2))},
			want:   updates{tier("y", 2), noTier("x")}},
		{name: "first path wins",
			before:   []func(*catalog){put("b", good("x", 2))},
			step:     []func(*catalog){put("a", good("x", 1))},
			want:     updates{tier("x", 1)},
			problems: []string{"Tier x: rejected: duplicate; the object at a:0 is used"}},
		{name: "first document of a file wins",
			step:     []func(*catalog){put("a", good("x", 1), good("x", 2))},
			want:     updates{tier("x", 1)},
			problems: []string{"Tier x: rejected: duplicate; the object at a:0 is used"}},
		{name: "the other takes over when the winner goes",
			before: []func(*catalog){put("a", good("x", 1)), put("b", good("x", 2))},
			step:   []func(*catalog){remove("a")},
			want:   updates{tier("x", 2)}},
		{name: "the other does not take over when the winner becomes invalid",
			before: []func(*catalog){put("a", good("x", 1)), put("b", good("x", 2))},
			step:   []func(*catalog){put("a", bad("x"))},
			problems: []string{
				"Tier x: rejected: bad; the last good version stays in force",
				"Tier x: rejected: duplicate; the object at a:0 is used"}},
		{name: "the other counts if the first was never valid",
			step:     []func(*catalog){put("a", bad("x")), put("b", good("x", 2))},
			want:     updates{tier("x", 2)},
			problems: []string{"Tier x: rejected: bad; the object at b:0 is used"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCatalog()
			for _, step := range tt.before {
				step(c)
				c.flush()
			}
			for _, step := range tt.step {
				step(c)
			}
			if diff := cmp.Diff(tt.want, c.flush()); diff != "" {
				t.Errorf("updates (-want +got):\n%s", diff)
			}
			var problems []string
			for _, p := range c.problems() {
				problems = append(problems, p.String())
			}
			if diff := cmp.Diff(tt.problems, problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCatalogWithdrawsKeysThatTheNewVersionLacks(t *testing.T) {
	c := newCatalog()
	version := func(updates ...model.Update) []validate.Document {
		return []validate.Document{{Ref: ref("x"), Updates: updates, OK: true}}
	}
	c.put("a", version(tier("one", 1), tier("two", 1)), true)
	c.flush()
	c.put("a", version(tier("two", 1), tier("three", 1)), true)
	if diff := cmp.Diff([]model.Update{tier("three", 1), noTier("one")}, c.flush()); diff != "" {
		t.Errorf("updates (-want +got):\n%s", diff)
	}
}

// The consumer may flush after a part of the updates. A policy that moves to another name must not be missing then, and a key
// that another object gives now must not be lost.
func TestCatalogDeletesLast(t *testing.T) {
	object := func(name string, updates ...model.Update) []validate.Document {
		return []validate.Document{{Ref: ref(name), Updates: updates, OK: true}}
	}
	c := newCatalog()
	c.put("a", object("x", tier("old", 1), tier("shared", 1)), true)
	c.flush()
	c.put("b", object("y", tier("new", 1), tier("shared", 2)), true)
	c.remove("a")
	if diff := cmp.Diff([]model.Update{tier("new", 1), tier("shared", 2), noTier("old")}, c.flush()); diff != "" {
		t.Errorf("updates (-want +got):\n%s", diff)
	}
}

func TestCatalogFindsTheObjectOfADocumentThatLostItsNamespace(t *testing.T) {
	c := newCatalog()
	named := func(ns string, ok bool) validate.Document {
		d := validate.Document{Ref: validate.Ref{Kind: "NetworkPolicy", Namespace: ns, Name: "db"}, OK: ok}
		if ok {
			d.Updates = []model.Update{model.PolicyUpdate{
				Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "db"}, Policy: &model.Policy{}}}
		}
		return d
	}
	c.put("a", []validate.Document{named("shop", true)}, true)
	c.flush()
	c.put("a", []validate.Document{named("", false)}, true)
	if got := c.flush(); got != nil {
		t.Errorf("updates %v, want the last good version to stay", got)
	}
	if n := (objectName{"NetworkPolicy", "shop", "db"}); !c.objects.InForce(n) {
		t.Errorf("%v is not in force any more", n)
	}
}

// Whatever the history, as long as every document is valid the objects are those of the first file that has them.
func TestCatalogDependsOnTheFilesOnly(t *testing.T) {
	paths, names := []string{"a", "b", "c"}, []string{"x", "y", "z"}
	rapid.Check(t, func(t *rapid.T) {
		c := newCatalog()
		files := map[string]map[string]float64{}
		delivered := map[string]float64{}
		version := 0.0
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				path := rapid.SampledFrom(paths).Draw(t, "path")
				files[path] = map[string]float64{}
				var docs []validate.Document
				for _, n := range rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID).Draw(t, "names") {
					version++
					files[path][n] = version
					docs = append(docs, good(n, version))
				}
				c.put(path, docs, true)
			},
			"remove": func(t *rapid.T) {
				path := rapid.SampledFrom(paths).Draw(t, "path")
				delete(files, path)
				c.remove(path)
			},
			"flush": func(t *rapid.T) {
				for _, u := range c.flush() {
					u, _ := u.(model.TierUpdate)
					if _, had := delivered[u.Name]; u.Tier == nil && !had {
						t.Fatalf("deletion of %s, which was not there", u.Name)
					} else if u.Tier == nil {
						delete(delivered, u.Name)
					} else {
						delivered[u.Name] = u.Tier.Order
					}
				}
				want := map[string]float64{}
				for _, path := range slices.Backward(paths) {
					for n, v := range files[path] {
						want[n] = v
					}
				}
				if diff := cmp.Diff(want, delivered); diff != "" {
					t.Fatalf("%v (-want +got):\n%s", files, diff)
				}
				mentions, duplicates := 0, 0
				for _, f := range files {
					mentions += len(f)
				}
				duplicates = mentions - len(want)
				if got := len(c.problems()); got != duplicates {
					t.Fatalf("%d problems, want %d duplicates: %s", got, duplicates, fmt.Sprint(c.problems()))
				}
			},
		})
	})
}
