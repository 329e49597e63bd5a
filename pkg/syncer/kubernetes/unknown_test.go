package kubernetes

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/syncer"
)

// An expired token concerns all kinds alike, so it is said once, and asked about by one.
func TestKubernetesSaysOnceThatTheServerDoesNotKnowIt(t *testing.T) {
	inCluster(t, few, func(c *cluster) {
		c.got()
		known := func(status, ready int) {
			c.readiness(ready)
			for path := range c.kinds {
				c.set(path, func(k *servedKind) { k.status = status })
			}
		}
		known(http.StatusUnauthorized, http.StatusUnauthorized)
		c.seen("", true)
		for path := range c.kinds {
			c.cut(path)
		}
		c.after(time.Minute)
		if k := c.kind("Pod"); k.State != syncer.KindFailing || k.Objects != 1 || !strings.Contains(k.Error, "(401)") {
			t.Errorf("while the token is not accepted: %+v", k)
		}
		if n := len(c.seen("", false)); n < 20 || n > 52+perKind {
			t.Errorf("%d requests in a minute, of all kinds together", n)
		}
		c.put(podsPath, pod("new", "10.0.0.2"))
		known(0, http.StatusOK)
		c.after(lastProbeUnknown + time.Second)
		c.expect("with a new token", "+pod shop/new [10.0.0.2]")
		c.logged("rejects our credentials (401)", "is reached again")
	})
}

// A server that answers all others and does not say whether it is ready is not taken for one that knows nobody.
func TestKubernetesIsNotHeldUpByReadinessThatIsNotTold(t *testing.T) {
	inCluster(t, few, func(c *cluster) {
		c.got()
		c.readiness(http.StatusUnauthorized)
		c.stop()
		c.after(time.Minute)
		c.start()
		c.put(podsPath, pod("new", "10.0.0.2"))
		c.after(4 * time.Second)
		c.expect("readiness is not told", "+pod shop/new [10.0.0.2]")
	})
}
