package syncer

import (
	"github.com/margay-project/margay/pkg/model"
)

// mostAddresses bounds how many addresses of the objects of one namespace one Drain returns. One that a rule refers to costs an agent
// some 8 µs, so that is about 35 ms of work. An object with more comes alone.
const mostAddresses = 4096

// room is what the namespaces have used of mostAddresses in one Drain.
type room map[string]uint32

// has reports whether there is room for an update of an object, of which the consumer has so many addresses, and uses it. Those that go are
// as much work as those that come.
func (r *room) has(u model.Update, before uint32) bool {
	namespace, now := addressesOf(u)
	size := max(now, before)
	if size == 0 {
		return true
	}
	used := (*r)[namespace]
	if used > 0 && used+size > mostAddresses {
		return false
	}
	if *r == nil {
		*r = room{}
	}
	(*r)[namespace] = used + size
	return true
}

// addressesOf is how many addresses or prefixes an object has that may have very many, and its namespace.
func addressesOf(u model.Update) (namespace string, size uint32) {
	switch u := u.(type) {
	case model.EndpointSliceUpdate:
		if u.Slice != nil {
			size = uint32(len(u.Slice.Addrs))
		}
		return u.ID.Namespace, size
	case model.NetworkSetUpdate:
		if u.Set != nil {
			size = uint32(len(u.Set.Nets))
		}
		return u.ID.Namespace, size
	}
	return "", 0
}
