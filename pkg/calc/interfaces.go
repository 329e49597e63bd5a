package calc

import (
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// interfaces are the endpoints of this node by the interface they name, even if it does not exist. Names of interfaces are
// short digests, so two pods can be made to have the same: the oldest has it, and of several that are equally old none.
type interfaces map[string][]interfaceClaim

type interfaceClaim struct {
	id      model.EndpointID
	created uint32
}

// holder is the endpoint that has an interface; the zero id: none has.
func (x interfaces) holder(name string) model.EndpointID {
	if name == "" {
		return model.EndpointID{}
	}
	var oldest interfaceClaim
	several := false
	for i, c := range x[name] {
		switch {
		case i == 0 || c.created < oldest.created:
			oldest, several = c, false
		case c.created == oldest.created:
			several = true
		}
	}
	if several {
		return model.EndpointID{}
	}
	return oldest.id
}

func (x interfaces) join(name string, id model.EndpointID, created uint32) {
	x[name] = append(x[name], interfaceClaim{id, created})
}

func (x interfaces) leave(name string, id model.EndpointID) {
	x[name] = slices.DeleteFunc(x[name], func(c interfaceClaim) bool { return c.id == id })
	if len(x[name]) == 0 {
		delete(x, name)
	}
}
