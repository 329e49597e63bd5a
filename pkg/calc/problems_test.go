package calc

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/model"
)

func TestProfilesThatDoNotExistAreProblemsByWhatTheyStandFor(t *testing.T) {
	of := func(profiles ...string) func(*model.Endpoint) {
		return func(ep *model.Endpoint) { ep.Profiles = profiles }
	}
	r := newRig(t, pod("shop/web", "10.0.0.2", of("kns.shop", "ksa.shop.default", "custom")))
	want := []Problem{
		{MissingNamespace, id("shop/web"), "endpoint shop/web", "Namespace shop does not exist: what no policy decides is denied"},
		{MissingProfile, id("shop/web"), "endpoint shop/web", "profile custom does not exist"},
	}
	if diff := cmp.Diff(want, r.graph.Problems()); diff != "" {
		t.Error(diff)
	}
	r.apply(model.ProfileUpdate{Name: model.NamespaceProfile("shop"), Profile: &model.Profile{}},
		model.ProfileUpdate{Name: "custom", Profile: &model.Profile{}})
	if got := r.graph.Problems(); len(got) != 0 {
		t.Errorf("problems %v", got)
	}
}
