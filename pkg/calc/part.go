package calc

import "github.com/margay-project/margay/pkg/model"

// Part is a part of a datastore. Its rules are still packed: a tenant may have made millions of them, so who asks a graph unpacks
// them, with Objects, where nothing waits for it.
type Part struct {
	updates []model.Update
	packed  []packedPart
}

// packedPart is rules, which do not change any more, and where they go.
type packedPart struct {
	source          packedRules
	ingress, egress *[]model.Rule
}

// add adds one object. Those that have rules may get them later.
func (p *Part) add(u model.Update) { p.updates = append(p.updates, u) }

// later has Objects fill in the rules of an object.
func (p *Part) later(source packedRules, ingress, egress *[]model.Rule) {
	if source.text != nil {
		p.packed = append(p.packed, packedPart{source, ingress, egress})
	}
}

// Objects are the objects of the part, in no order. They may be shared; the list is the caller's. It needs no graph, and may run beside one.
func (p *Part) Objects() []model.Update {
	for _, o := range p.packed {
		lists := o.source.lists()
		*o.ingress, *o.egress = lists[model.Ingress], lists[model.Egress]
	}
	p.packed = nil
	return p.updates
}
