package syncer

import (
	"github.com/margay-project/margay/pkg/model"
)

// mostAddresses bounds how many addresses of the objects of one namespace one Drain returns. One that a rule refers to costs an agent
// some 8 µs, so that is about 35 ms of work. An object with more comes alone.
const mostAddresses = 4096

// room is what the namespaces have used of mostAddresses in one Drain.
type room map[string]int

// has reports whether there is room for an update, and uses it.
func (r *room) has(u model.Update) bool {
	namespace, size := addressesOf(u)
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
func addressesOf(u model.Update) (namespace string, size int) {
	switch u := u.(type) {
	case model.EndpointSliceUpdate:
		if u.Slice != nil {
			return u.ID.Namespace, len(u.Slice.Addrs)
		}
	case model.NetworkSetUpdate:
		if u.Set != nil {
			return u.ID.Namespace, len(u.Set.Nets)
		}
	}
	return "", 0
}
