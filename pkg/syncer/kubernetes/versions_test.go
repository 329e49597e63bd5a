package kubernetes

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/syncer"
)

const (
	newerPath    = "/apis/policy.networking.k8s.io/v1beta1/clusternetworkpolicies"
	neighborPath = "/apis/policy.networking.k8s.io/v1alpha1/adminnetworkpolicies"
	guard        = `{"metadata":{"name":"guard"},"spec":{"tier":"Admin","priority":1,"subject":{"namespaces":{}}}}`
)

// addResource adds a resource that the agent does not know to the server.
func (a *apiServer) addResource(path, kind string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	parts := strings.Split(path, "/")
	a.kinds[path] = &servedKind{apiVersion: parts[2] + "/" + parts[3], kind: kind, objects: map[string]manifestMap{}, floor: 1,
		changed: make(chan struct{}), cut: make(chan struct{})}
}

// A CRD that drops the version which the agent reads still holds its objects: nothing is deleted.
func TestKubernetesKeepsAKindThatIsServedInAnotherVersionOnly(t *testing.T) {
	inCluster(t, few, func(c *cluster) {
		c.got()
		c.after(time.Minute)
		c.addResource(newerPath, "ClusterNetworkPolicy")
		c.put(newerPath, guard)
		c.set(clusterPath, func(k *servedKind) { k.absent = true })
		c.cut(clusterPath)
		c.after(10 * time.Minute)
		c.expect("only the other version is served")
		k := c.kind("ClusterNetworkPolicy")
		if k.State != syncer.KindFailing || k.Objects != 1 || !strings.Contains(k.Error, "policy.networking.k8s.io/v1beta1") {
			t.Errorf("only the other version is served: %+v", k)
		}
		c.put(clusterPath, `{"metadata":{"name":"more"},"spec":{"tier":"Admin","priority":2,"subject":{"namespaces":{}}}}`)
		c.set(clusterPath, func(k *servedKind) { k.absent = false })
		c.after(time.Minute)
		c.expect("both are served", "+policy kcnp/more 0")
		if k := c.kind("ClusterNetworkPolicy"); k.State != syncer.KindSynced || k.Error != "" {
			t.Errorf("both are served: %+v", k)
		}
		c.logged("cannot be followed, will try again; its last known objects stay in force", "is followed again")
	})
}

func TestKubernetesWaitsForAKindThatIsServedInAnotherVersionOnly(t *testing.T) {
	inCluster(t, func(c *cluster) {
		few(c)
		c.addResource(newerPath, "ClusterNetworkPolicy")
		c.put(newerPath, guard)
		c.set(clusterPath, func(k *servedKind) { k.absent = true })
	}, func(c *cluster) {
		c.after(10 * time.Minute)
		if got := c.got(); slices.Contains(got, "in sync") {
			t.Errorf("in sync without ClusterNetworkPolicies: %q", got)
		}
		if k := c.kind("ClusterNetworkPolicy"); k.State != syncer.KindListing || k.Listed ||
			!strings.Contains(k.Error, "policy.networking.k8s.io/v1beta1") || !strings.Contains(k.Error, "v1alpha2") {
			t.Errorf("%+v", k)
		}
		c.logged("nothing new is enforced before it has been listed")
	})
}

// Other resources of the group, and a group that has gone with all of its versions, are no other version of the kind.
func TestKubernetesFindsAKindAbsentBesideOthersOfItsGroup(t *testing.T) {
	inCluster(t, func(c *cluster) {
		few(c)
		c.addResource(neighborPath, "AdminNetworkPolicy")
		c.set(clusterPath, func(k *servedKind) { k.absent = true })
	}, func(c *cluster) {
		if got := c.got(); !slices.Contains(got, "in sync") {
			t.Errorf("not in sync: %q", got)
		}
		if k := c.kind("ClusterNetworkPolicy"); k.State != syncer.KindAbsent {
			t.Errorf("%+v", k)
		}
		c.logged()
	})
}

// One of several API servers may not serve a CRD yet, or not any more, while discovery names it.
func TestKubernetesReportsAKindThatIsNotFoundWhereDiscoveryNamesIt(t *testing.T) {
	inCluster(t, few, func(c *cluster) {
		c.got()
		c.after(time.Minute)
		c.set(clusterPath, func(k *servedKind) { k.status = 404 })
		c.cut(clusterPath)
		c.after(10 * time.Minute)
		c.expect("not found")
		if k := c.kind("ClusterNetworkPolicy"); k.State != syncer.KindFailing || k.Objects != 1 || !strings.Contains(k.Error, "404") || k.Failures < 10 {
			t.Errorf("not found: %+v", k)
		}
		c.set(clusterPath, func(k *servedKind) { k.status = 0 })
		c.after(time.Minute)
		if k := c.kind("ClusterNetworkPolicy"); k.State != syncer.KindSynced || k.Error != "" {
			t.Errorf("found: %+v", k)
		}
		c.logged("cannot be followed, will try again; its last known objects stay in force", "is followed again")
	})
	inCluster(t, func(c *cluster) {
		few(c)
		c.set(clusterPath, func(k *servedKind) { k.status = 404 })
	}, func(c *cluster) {
		c.after(10 * time.Minute)
		if got := c.got(); slices.Contains(got, "in sync") {
			t.Errorf("in sync without ClusterNetworkPolicies: %q", got)
		}
		if k := c.kind("ClusterNetworkPolicy"); k.State != syncer.KindListing || !strings.Contains(k.Error, "404") {
			t.Errorf("at the start: %+v", k)
		}
		c.logged("nothing new is enforced before it has been listed")
	})
}
