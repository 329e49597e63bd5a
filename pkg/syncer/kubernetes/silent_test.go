package kubernetes

import (
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/syncer"
)

// A proxy may keep connections alive whose server is gone.
func TestKubernetesLeavesWatchesThatDoNotEndInTime(t *testing.T) {
	inCluster(t, few, func(c *cluster) {
		c.got()
		c.set(podsPath, func(k *servedKind) { k.mute = true })
		c.cut(podsPath)
		c.after(time.Second)
		c.set(podsPath, func(k *servedKind) { k.mute = false })
		c.put(podsPath, pod("new", "10.0.0.2"))
		c.after(10*time.Minute + watchGrace + time.Second)
		c.expect("after the longest watch", "+pod shop/new [10.0.0.2]")
		if k := c.kind("Pod"); k.Lists != 1 || k.State != syncer.KindSynced {
			t.Errorf("%+v", k)
		}
		c.logged()
	})
}

func TestKubernetesLeavesWatchesThatAreNotAnswered(t *testing.T) {
	inCluster(t, few, func(c *cluster) {
		c.got()
		c.set(podsPath, func(k *servedKind) { k.slow = true })
		c.cut(podsPath)
		c.after(requestTimeout + 10*time.Second)
		if k := c.kind("Pod"); k.State != syncer.KindFailing || k.Error != errSilent.Error() {
			t.Errorf("without an answer: %+v", k)
		}
		c.set(podsPath, func(k *servedKind) { k.slow = false })
		c.put(podsPath, pod("new", "10.0.0.2"))
		c.after(requestTimeout + lastPause)
		c.expect("when it answers", "+pod shop/new [10.0.0.2]")
		if k := c.kind("Pod"); k.Lists != 1 || k.State != syncer.KindSynced {
			t.Errorf("%+v", k)
		}
		c.logged("cannot be followed", "followed again")
	})
}
