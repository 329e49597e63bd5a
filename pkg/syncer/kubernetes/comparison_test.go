package kubernetes

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// firstReport is longer than the time until hidden policies are reported.
const firstReport = firstComparison + 10*time.Minute

// ofTier is a policy of a tier.
func ofTier(namespace, name, tier string) string {
	return fmt.Sprintf(`{"metadata":{"namespace":%q,"name":%q},"spec":{"tier":%q,"selector":"all()","types":["Ingress"]}}`, namespace, name, tier)
}

// filtered is Calico's API server for a reader with rights to the tier default alone: it leaves out the policies of others.
func filtered(c *cluster) {
	behindCalicosServer(c)
	c.put(calicoV1, ofTier("shop", "secure.lock", "secure"))
	c.put(calicoV3, ofTier("shop", "secure.lock", "secure"))
	c.set(calicoV3, func(k *servedKind) { k.tiers = "default" })
}

const calicoPolicies = "NetworkPolicy.projectcalico.org"

func TestKubernetesReportsPoliciesThatTheGroupItReadsLeavesOut(t *testing.T) {
	inCluster(t, filtered, func(c *cluster) {
		c.expect("at first", append(slices.Clone(behindCalicosServerUpdates), "in sync")...)
		c.wantRead(calicoPolicies, "projectcalico.org/v3", "crd.projectcalico.org/v1")
		c.after(firstReport)
		c.expect("reports change nothing")
		c.wantRead(calicoPolicies, "projectcalico.org/v3", "crd.projectcalico.org/v1, which has one more: shop/secure.lock")
		c.wantRead("GlobalNetworkPolicy", "projectcalico.org/v3", "crd.projectcalico.org/v1")
		c.logged("policies are not in the lists of the first of Calico's groups")
		c.put(calicoV1, ofTier("shop", "secure.more", "secure"))
		c.after(2 * compareEvery)
		c.wantRead(calicoPolicies, "projectcalico.org/v3", "crd.projectcalico.org/v1, which has 2 more, shop/secure.lock among them")
		c.put(calicoV3, ofTier("shop", "secure.lock", "secure"))
		c.put(calicoV3, ofTier("shop", "secure.more", "secure"))
		c.after(10 * time.Minute)
		c.expect("the lists are whole", "+policy np/shop/secure.lock 0", "+policy np/shop/secure.more 0")
		c.wantRead(calicoPolicies, "projectcalico.org/v3", "crd.projectcalico.org/v1")
	})
}

// One cluster-wide policy that is left out makes the agent read the group that has it.
func TestKubernetesReadsTheSecondGroupIfTheFirstLeavesOutAGlobalPolicy(t *testing.T) {
	lock := `{"metadata":{"name":"secure.lock"},"spec":{"tier":"secure","selector":"all()","types":["Ingress"]}}`
	inCluster(t, func(c *cluster) {
		filtered(c)
		c.put(globalV1, lock)
		c.put(globalV3, lock)
		c.set(globalV3, func(k *servedKind) { k.tiers = "default" })
	}, func(c *cluster) {
		c.expect("at first", append(slices.Clone(behindCalicosServerUpdates), "+policy gnp/secure.lock 0", "+policy np/shop/secure.lock 0", "in sync")...)
		c.wantRead(calicoPolicies, "crd.projectcalico.org/v1", "projectcalico.org/v3, which lacks GlobalNetworkPolicy secure.lock")
	})
}

// requestsForNames counts the lists of names of the second group's policies in a time.
func (c *cluster) requestsForNames(d time.Duration) (n int) {
	c.seen("", true)
	c.after(d)
	for _, r := range c.seen(calicoV1, true) {
		if strings.Contains(r, fmt.Sprintf("limit=%d", compareSome)) {
			n++
		}
	}
	return n
}

// A tenant that makes objects in the second group all the time gets no more than one look more for each.
func TestKubernetesComparesGroupsRarely(t *testing.T) {
	const most, least = 9, 5 // looks in 48 hours, 6 to 9 hours apart
	inCluster(t, behindCalicosServer, func(c *cluster) {
		if n := c.requestsForNames(48 * time.Hour); n < least || n > most {
			t.Errorf("%d looks in 48 hours", n)
		}
		churn := 0
		for i := range 48 * 60 {
			c.put(calicoV1, calicoPolicy("evil", fmt.Sprint("decoy", i), 1))
			churn += c.requestsForNames(time.Minute)
			c.remove(calicoV1, fmt.Sprint("evil/decoy", i))
		}
		if churn < least || churn > 2*most {
			t.Errorf("%d looks in 48 hours of churn", churn)
		}
		c.wantRead(calicoPolicies, "projectcalico.org/v3", "crd.projectcalico.org/v1") // none was there at two looks
	})
}

func TestKubernetesComparesOnlyWhileTheFirstGroupIsRead(t *testing.T) {
	for group, name := range []string{"the first group is served alone", "the second group is served alone"} {
		inCluster(t, func(c *cluster) { c.serveCalico(group, true) }, func(c *cluster) {
			if n := c.requestsForNames(48 * time.Hour); n != 0 {
				t.Errorf("%s: %d looks", name, n)
			}
		})
	}
	inCluster(t, func(c *cluster) {
		behindCalicosServer(c)
		c.put(tiersV1, tier("more"))
	}, func(c *cluster) {
		if n := c.requestsForNames(48 * time.Hour); n != 0 {
			t.Errorf("the second is read: %d looks", n)
		}
	})
}
