package directory

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// A Profile counts before the Namespace that means the same profile, in whatever order both come and change, and with the
// Profile gone the Namespace counts again.
func TestAProfileCountsBeforeItsNamespace(t *testing.T) {
	meaning := func(kind, name, version string) validate.Document {
		u := model.ProfileUpdate{Name: "kns.shop", Profile: &model.Profile{Labels: map[string]string{"version": version}}}
		return validate.Document{Ref: validate.Ref{Kind: kind, Name: name}, Updates: []model.Update{u}, OK: true}
	}
	profile := func(version string) validate.Document { return meaning("Profile", "kns.shop", version) }
	namespace := func(version string) validate.Document { return meaning("Namespace", "shop", version) }
	c := newCatalog()
	in := ""
	step := func(what, want string, do func()) {
		t.Helper()
		do()
		for _, u := range c.flush() {
			if p := u.(model.ProfileUpdate); p.Profile == nil {
				in = "none"
			} else {
				in = p.Profile.Labels["version"]
			}
		}
		if diff := cmp.Diff(want, in); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	put := func(path string, d validate.Document) func() {
		return func() { c.put(path, []validate.Document{d}, true) }
	}
	remove := func(path string) func() { return func() { c.remove(path) } }
	step("a Namespace", "n1", put("a", namespace("n1")))
	step("a Profile beside it", "p1", put("b", profile("p1")))
	step("the Namespace changes", "p1", put("a", namespace("n2")))
	step("the Profile changes", "p2", put("b", profile("p2")))
	step("the Profile goes", "n2", remove("b"))
	step("the Namespace changes", "n3", put("a", namespace("n3")))
	step("a Profile comes again", "p3", put("b", profile("p3")))
	step("the Namespace goes", "p3", remove("a"))
	step("the Profile goes, too", "none", remove("b"))
	step("both come", "p4", func() { put("a", namespace("n4"))(); put("b", profile("p4"))() })
	step("both go", "none", func() { remove("a")(); remove("b")() })
	if len(c.rivals.inForce)+len(c.rivals.touched) != 0 {
		t.Errorf("left: %+v", c.rivals)
	}
}
