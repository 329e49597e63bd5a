package syncer

import (
	"maps"

	"github.com/margay-project/margay/pkg/model"
)

// MostAddresses bounds how many addresses of the objects of one namespace one Drain returns. One that a rule refers to costs an agent
// some 8 µs, so that is about 4 ms of work. An object with more comes alone.
const MostAddresses = 512

// room is what the namespaces have used of MostAddresses in one Drain.
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
	if used > 0 && used+size > MostAddresses {
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

// holds are the namespaces in which the consumer is changing network sets or inherited labels in parts; false: those in which only policies wait.
type holds map[string]bool

// begin returns them with that of an update of a network set that may be changed in parts. before is as in room.has.
func (h holds) begin(u model.Update, before uint32) holds {
	set, is := u.(model.NetworkSetUpdate)
	if _, now := addressesOf(u); !is || max(now, before) <= MostAddresses {
		return h
	}
	more := maps.Clone(h)
	if more == nil {
		more = holds{}
	}
	more[set.ID.Namespace] = true
	return more
}

// keep reports whether an update waits for the end of such a change: what follows in the same namespace and may be meant for what will be, and
// deletions that this concerns, since it may replace what is deleted. Deletions of pods do not wait, as in scopes.concern. Nor do ServiceAccounts
// and Namespaces that the consumer does not know: pods may be there that inherit nothing without them.
func (h holds) keep(u model.Update, present, known bool) bool {
	if !present {
		return !isPod(u) && (h[scopeOf(u)] || h[""])
	}
	sets, held := h[scopeOf(u)]
	switch u.(type) {
	case model.NetworkSetUpdate, model.EndpointSliceUpdate:
		return sets
	case model.ProfileUpdate:
		return sets && known
	case model.PolicyUpdate:
		return held
	}
	return false
}

// isPolicy reports whether an update that waits does so for other policies alone, or behind a policy that does.
func (h holds) isPolicy(u model.Update, present bool) bool {
	if !present {
		return !h[scopeOf(u)] && !h[""]
	}
	_, is := u.(model.PolicyUpdate)
	return is && !h[scopeOf(u)]
}
