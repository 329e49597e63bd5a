package calc

import (
	"iter"

	"github.com/margay-project/margay/pkg/model"
)

// dirty lists the objects that Flush still has to look at again. It is empty between flushes.
type dirty struct {
	selections map[*policySelection]struct{} // of the local index: matching some group or none may have changed
	policies   map[*policy]struct{}          // may have become active or inactive, or changed
	profiles   map[string]struct{}           // likewise
	rulesets   map[*ruleset]struct{}         // to be built again
	groups     map[*localGroup]struct{}      // of the local index: matched by other policies, or by changed ones
	endpoints  map[model.EndpointID]struct{} // local ones that came, changed or left
}

func newDirty() dirty {
	return dirty{
		selections: map[*policySelection]struct{}{},
		policies:   map[*policy]struct{}{},
		profiles:   map[string]struct{}{},
		rulesets:   map[*ruleset]struct{}{},
		groups:     map[*localGroup]struct{}{},
		endpoints:  map[model.EndpointID]struct{}{},
	}
}

// touch has groups of the local index looked at again.
func (d *dirty) touch(groups iter.Seq[*localGroup]) {
	for gr := range groups {
		d.groups[gr] = struct{}{}
	}
}

func (d *dirty) reset() {
	empty(&d.selections)
	empty(&d.policies)
	empty(&d.profiles)
	empty(&d.rulesets)
	empty(&d.groups)
	empty(&d.endpoints)
}
