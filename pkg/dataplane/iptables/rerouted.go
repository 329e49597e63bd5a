package iptables

import (
	"log/slog"
	"slices"
	"time"

	"github.com/margay-project/margay/pkg/further"
	"github.com/margay-project/margay/pkg/shares"
)

// rerouted notices that the node routes further sources elsewhere than when live flows were judged last. Then a flow may have another pod
// at its end than the one that policy has allowed it to, so all are judged again.
type rerouted struct {
	routes shares.Routes
	log    *slog.Logger
	kept   bool            // existing connections are kept: then kept ends those of former owners, and this notices nothing
	paths  []further.Route // to the pods that listed further sources at the last look
	moved  bool            // flows have not been judged again since they have changed
	unread bool            // the last attempt to read routes failed
	looked time.Time
	cost   time.Duration // of the last look
}

// look reads the routes to the pods that list further sources. It reports whether they have changed. Without readable routes it goes by
// those that it has read last.
func (r *rerouted) look(listed []further.Listed, now func() time.Time) (moved bool) {
	began := now()
	if r.kept || r.moved || r.routes == nil || len(listed)+len(r.paths) == 0 || began.Sub(r.looked) < lookPart*r.cost {
		return false
	}
	routes, err := r.routes(further.Interfaces(listed))
	if r.looked = now(); err != nil {
		if !r.unread {
			r.log.Warn("the node's routes cannot be read: until they can, flows with further sources go on although the node may route these to "+
				"another pod; will try again each second", "err", err)
		}
		r.unread = true
		return false
	}
	r.cost, r.unread = r.looked.Sub(began), false
	r.moved = !slices.Equal(routes, r.paths)
	r.paths = routes
	return r.moved
}

// followed notes that live flows are judged again with the next packet of each.
func (r *rerouted) followed() { r.moved = false }
