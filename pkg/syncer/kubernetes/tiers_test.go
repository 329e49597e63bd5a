package kubernetes

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/syncer"
)

const (
	stagedV3       = "/apis/projectcalico.org/v3/stagednetworkpolicies"
	stagedGlobalV3 = "/apis/projectcalico.org/v3/stagedglobalnetworkpolicies"
)

// withTierRights gives or refuses the agent the rights to tiers that Calico's API server asks for.
func (c *cluster) withTierRights(granted bool) {
	for _, path := range []string{calicoV3, globalV3, stagedV3, stagedGlobalV3} {
		c.set(path, func(k *servedKind) { k.tierRight = !granted })
		c.cut(path)
	}
}

// behindCalicosServer is a cluster with one set of Calico's objects in both groups.
func behindCalicosServer(c *cluster) {
	bothServed(c)
	for _, paths := range [][3]string{{tiersV1, globalV1, calicoV1}, {tiersV3, globalV3, calicoV3}} {
		c.put(paths[0], tier("secure"))
		c.put(paths[1], calicoPolicy("", "all", 1))
		c.put(paths[2], calicoPolicy("bank", "deny", 0))
	}
	c.put(policiesPath, `{"metadata":{"namespace":"shop","name":"deny"},"spec":{"podSelector":{}}}`)
}

var behindCalicosServerUpdates = []string{"+policy gnp/all 1", "+policy knp/shop/deny 0", "+policy np/bank/deny 0", "+tier secure"}

const refusedGlobals = "needs the right to get, list and watch tier.globalnetworkpolicies"

// The same objects are in the other group, so an agent without the right does not stand still. It changes when it is given the right.
func TestKubernetesReadsTheSecondGroupWithoutARightToTiers(t *testing.T) {
	inCluster(t, func(c *cluster) {
		behindCalicosServer(c)
		c.withTierRights(false)
	}, func(c *cluster) {
		c.expect("without the right", append(slices.Clone(behindCalicosServerUpdates), "in sync")...)
		for _, kind := range []string{"Tier", "GlobalNetworkPolicy", "NetworkPolicy.projectcalico.org", "StagedNetworkPolicy"} {
			c.wantRead(kind, "crd.projectcalico.org/v1", "projectcalico.org/v3, which "+refusedGlobals)
		}
		c.put(calicoV1, calicoPolicy("bank", "more", 1))
		c.put(calicoV3, calicoPolicy("bank", "more", 1))
		c.after(twoLooks)
		c.expect("a change is followed", "+policy np/bank/more 1")
		c.logged("Calico's API server does not let it read the policies of any tier of the first")
		c.withTierRights(true)
		c.after(twoLooks)
		c.expect("with the right", "+policy gnp/all 1", "+policy np/bank/deny 0", "+policy np/bank/more 1", "+tier secure")
		c.wantRead("NetworkPolicy.projectcalico.org", "projectcalico.org/v3", "crd.projectcalico.org/v1")
	})
}

// A second group with other objects is not what the server behind the first reads: nothing is decided, and the reason is reported.
func TestKubernetesWithoutARightToTiersDoesNotReadAnotherClustersLeftovers(t *testing.T) {
	for name, prepare := range map[string]func(*cluster){
		"the second group is empty":        func(c *cluster) { c.remove(tiersV1, "<nil>/secure") },
		"the first group has another Tier": func(c *cluster) { c.put(tiersV3, tier("other")) },
		"the first group is served alone":  func(c *cluster) { c.serveCalico(1, false) },
	} {
		inCluster(t, func(c *cluster) {
			behindCalicosServer(c)
			prepare(c)
			c.withTierRights(false)
		}, func(c *cluster) {
			c.after(10 * time.Minute)
			for _, u := range c.got() {
				if u == "in sync" || strings.HasPrefix(u, "+policy gnp") || strings.HasPrefix(u, "+policy np") {
					t.Errorf("%s: %s", name, u)
				}
			}
			for _, kind := range []string{"GlobalNetworkPolicy", "NetworkPolicy.projectcalico.org"} {
				k := c.kind(kind)
				if k.State != syncer.KindListing || !strings.Contains(k.Error, "the right to get, list and watch tier.") {
					t.Errorf("%s: %s is %s: %s", name, kind, k.State, k.Error)
				}
			}
			c.withTierRights(true)
			c.after(2 * time.Minute)
			if !slices.Contains(c.got(), "in sync") {
				t.Errorf("%s: not in sync with the right", name)
			}
		})
	}
}

// Calico's API server is upgraded to one that asks for the right: nothing is withdrawn, and the reason is reported.
func TestKubernetesKeepsWhatItHasWhenARightToTiersIsAskedFor(t *testing.T) {
	inCluster(t, behindCalicosServer, func(c *cluster) {
		c.expect("at first", append(slices.Clone(behindCalicosServerUpdates), "in sync")...)
		c.withTierRights(false)
		c.after(time.Hour)
		c.expect("refused")
		if k := c.kind("NetworkPolicy.projectcalico.org"); k.State != syncer.KindFailing || !strings.Contains(k.Error, "tier.networkpolicies") {
			t.Errorf("%s: %s", k.State, k.Error)
		}
		c.put(calicoV3, calicoPolicy("bank", "more", 1))
		c.withTierRights(true)
		c.after(2 * time.Minute)
		c.expect("with the right", "+policy np/bank/more 1")
	})
}

// A list or watch of Calico's API server has the policies of the tiers that there were when it began, and some releases leave a watch
// open when a tier is made.
func TestKubernetesSeesPoliciesOfATierThatIsMade(t *testing.T) {
	inCluster(t, func(c *cluster) {
		behindCalicosServer(c)
		for _, path := range []string{calicoV3, globalV3, stagedV3, stagedGlobalV3} {
			c.set(path, func(k *servedKind) { k.tiersAt = tiersV3 })
		}
	}, func(c *cluster) {
		c.expect("at first", append(slices.Clone(behindCalicosServerUpdates), "in sync")...)
		c.put(tiersV3, tier("late"))
		c.put(calicoV3, ofTier("shop", "late.lock", "late"))
		c.put(calicoV3, calicoPolicy("bank", "more", 1)) // takes the watch past the policy that it leaves out
		c.after(tierPause + time.Second)
		c.expect("with the tier", "+policy np/bank/more 1", "+policy np/shop/late.lock 0", "+tier late")
		c.put(calicoV3, ofTier("shop", "late.other", "late"))
		c.after(time.Second)
		c.expect("followed", "+policy np/shop/late.other 0")
		c.remove(tiersV3, "<nil>/late")
		c.seen("", true)
		c.put(tiersV3, tier("secure"))
		c.after(time.Hour)
		for _, r := range c.seen(calicoV3, true) {
			if !strings.Contains(r, "watch=") {
				t.Errorf("listed again without a new tier: %s", r)
			}
		}
	})
}
