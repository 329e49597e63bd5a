package kubernetes

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// Places of Calico's kinds, of the first group and of the second.
const (
	tiersV3  = "/apis/projectcalico.org/v3/tiers"
	tiersV1  = "/apis/crd.projectcalico.org/v1/tiers"
	globalV3 = "/apis/projectcalico.org/v3/globalnetworkpolicies"
	globalV1 = "/apis/crd.projectcalico.org/v1/globalnetworkpolicies"
	calicoV3 = "/apis/projectcalico.org/v3/networkpolicies"
	calicoV1 = "/apis/crd.projectcalico.org/v1/networkpolicies"

	// twoLooks is longer than two looks of the default interval.
	twoLooks = 7 * time.Minute
)

// serveCalico makes all CRDs of the first group (0) or the second (1), or removes them.
func (c *cluster) serveCalico(group int, served bool) {
	for _, k := range kinds.Served(validate.Pods{}) {
		if len(k.Versions) == 1 {
			continue
		}
		path := "/apis/" + k.Versions[group].String() + "/" + k.Resource
		c.set(path, func(k *servedKind) { k.absent = !served })
		if !served {
			c.cut(path)
		}
	}
}

func bothServed(c *cluster) {
	c.serveCalico(0, true)
	c.serveCalico(1, true)
}

// calicoPolicy is a policy with so many rules: the versions of a test are distinguished by that.
func calicoPolicy(namespace, name string, rules int) string {
	if namespace != "" {
		namespace = fmt.Sprintf(`"namespace":%q,`, namespace)
	}
	return fmt.Sprintf(`{"metadata":{%s"name":%q},"spec":{"selector":"all()","types":["Ingress"],"ingress":[%s]}}`,
		namespace, name, strings.TrimSuffix(strings.Repeat(`{"action":"Allow"},`, rules), ","))
}

func tier(name string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"order":5}}`, name)
}

func (c *cluster) wantRead(kind, read, notRead string) {
	c.t.Helper()
	if k := c.kind(kind); k.Read != read || k.NotRead != notRead {
		c.t.Errorf("%s: reads %q, and not %q; want %q and %q", kind, k.Read, k.NotRead, read, notRead)
	}
}

// A tenant may write policies in its namespace, in whichever group is served. How many there are must not matter.
func TestKubernetesIsNotLedToAnotherGroupByATenant(t *testing.T) {
	decoys := func(c *cluster, path string, n int) {
		for i := range n {
			c.put(path, calicoPolicy("evil", fmt.Sprint("decoy", i), 1))
		}
	}
	for _, n := range []int{1, 2, 100} {
		for name, tt := range map[string]struct{ tiers, used, other string }{
			"the second is in use":                         {tiersV1, calicoV1, calicoV3},
			"the first is in use":                          {tiersV3, calicoV3, calicoV1},
			"the second is in use, without global objects": {"", calicoV1, calicoV3},
		} {
			inUse := func(c *cluster) {
				bothServed(c)
				if tt.tiers != "" {
					c.put(tt.tiers, tier("secure"))
				}
				c.put(tt.used, calicoPolicy("bank", "deny", 0))
				c.put(tt.used, calicoPolicy("shop", "deny", 0))
			}
			want := []string{"+policy np/bank/deny 0", "+policy np/shop/deny 0", "in sync"}
			if tt.tiers != "" {
				want = append(want, "+tier secure")
			}
			t.Run(fmt.Sprintf("%s, %d decoys", name, n), func(t *testing.T) {
				inCluster(t, inUse, func(c *cluster) {
					c.expect("at first", want...)
					decoys(c, tt.other, n)
					c.after(twoLooks)
					c.expect("decoys")
				})
				inCluster(t, func(c *cluster) {
					inUse(c)
					decoys(c, tt.other, n)
				}, func(c *cluster) { c.expect("a start beside decoys", want...) })
			})
		}
	}
}

// Objects are copied one by one, those in namespaces first. All kinds change to the copy together, when the last cluster-wide
// object has been there for two looks, and nothing is withdrawn on the way.
func TestKubernetesFollowsAMigrationToTheOtherGroup(t *testing.T) {
	before := func(c *cluster) {
		c.serveCalico(1, true)
		c.put(tiersV1, tier("secure"))
		c.put(globalV1, calicoPolicy("", "all", 1))
		c.put(calicoV1, calicoPolicy("bank", "deny", 1))
		c.put(calicoV1, calicoPolicy("shop", "deny", 1))
	}
	copies := []func(*cluster){
		func(c *cluster) { c.serveCalico(0, true) },
		func(c *cluster) { c.put(calicoV3, calicoPolicy("bank", "deny", 2)) },
		func(c *cluster) { c.put(calicoV3, calicoPolicy("shop", "deny", 2)) },
		func(c *cluster) { c.put(globalV3, calicoPolicy("", "all", 2)) },
	}
	first := []string{"+policy gnp/all 1", "+policy np/bank/deny 1", "+policy np/shop/deny 1", "+tier secure", "in sync"}
	inCluster(t, before, func(c *cluster) {
		c.expect("at first", first...)
		for i, copy := range copies {
			copy(c)
			c.after(twoLooks)
			c.expect(fmt.Sprint("copies ", i))
		}
		c.wantRead("Tier", "crd.projectcalico.org/v1", "projectcalico.org/v3, which lacks Tier secure")
		c.put(tiersV3, tier("secure"))
		c.after(twoLooks)
		c.expect("all is copied", "+policy gnp/all 2", "+policy np/bank/deny 2", "+policy np/shop/deny 2", "+tier secure")
		for _, kind := range []string{"Tier", "GlobalNetworkPolicy", "NetworkPolicy.projectcalico.org", "StagedNetworkPolicy", "FelixConfiguration"} {
			c.wantRead(kind, "projectcalico.org/v3", "crd.projectcalico.org/v1")
		}
		// The first group is the one in use from now on, also where the second still has what was deleted.
		c.remove(globalV3, "<nil>/all")
		c.put(tiersV1, tier("old"))
		c.after(twoLooks)
		c.expect("a deletion", "-policy gnp/all")
		c.serveCalico(1, false)
		c.after(twoLooks)
		c.expect("the old CRDs are gone")
		c.logged("Calico's kinds are served in two groups; the agent reads the second", "the agent reads the first from now on")
	})
	for i := range copies {
		inCluster(t, func(c *cluster) {
			before(c)
			for _, copy := range copies[:i+1] {
				copy(c)
			}
		}, func(c *cluster) {
			c.expect(fmt.Sprint("a start after copy ", i), first...)
			c.logged("Calico's kinds are served in two groups; the agent reads the second")
		})
	}
}

func TestKubernetesReadsAMigratedGroupAtTheStart(t *testing.T) {
	for name, tt := range map[string]func(*cluster){
		"the old objects are there": func(c *cluster) {
			c.put(tiersV1, tier("secure"))
			c.put(calicoV1, calicoPolicy("bank", "deny", 1))
		},
		"the old CRDs are gone": func(c *cluster) { c.serveCalico(1, false) },
	} {
		inCluster(t, func(c *cluster) {
			bothServed(c)
			c.put(tiersV3, tier("secure"))
			c.put(tiersV3, tier("more"))
			c.put(calicoV3, calicoPolicy("bank", "deny", 2))
			tt(c)
		}, func(c *cluster) {
			c.expect(name, "+tier more", "+tier secure", "+policy np/bank/deny 2", "in sync")
			c.logged()
		})
	}
}

// Where people use policies in namespaces alone, nothing but a cluster-wide object says that the first group is in use.
func TestKubernetesReadsTheFirstGroupWhenItHasTheOnlyClusterWideObject(t *testing.T) {
	inCluster(t, func(c *cluster) {
		bothServed(c)
		c.put(calicoV1, calicoPolicy("bank", "deny", 1))
		c.put(calicoV3, calicoPolicy("bank", "deny", 2))
	}, func(c *cluster) {
		c.expect("without one", "+policy np/bank/deny 1", "in sync")
		c.wantRead("NetworkPolicy.projectcalico.org", "crd.projectcalico.org/v1", "projectcalico.org/v3, which lacks any cluster-wide object")
		c.put(felixV3Path, onlyName("default"))
		c.after(twoLooks)
		c.expect("with one", "+configuration default map[]", "+policy np/bank/deny 2")
	})
	for group, path := range []string{calicoV3, calicoV1} {
		inCluster(t, func(c *cluster) {
			c.serveCalico(group, true)
			c.put(path, calicoPolicy("bank", "deny", 1))
		}, func(c *cluster) {
			c.expect("one group is served", "+policy np/bank/deny 1", "in sync")
			c.wantRead("NetworkPolicy.projectcalico.org", "", "")
			c.logged()
			c.serveCalico(1-group, true) // what is in force alone stays
			c.put([]string{calicoV3, calicoV1}[1-group], calicoPolicy("evil", "decoy", 1))
			c.after(twoLooks)
			c.expect("the other one is served, too")
		})
	}
}

// An API server behind the cluster's has the same objects. It may come, go and fail.
func TestKubernetesReadsOneSetOfObjectsInTwoGroups(t *testing.T) {
	same := func(c *cluster, paths ...string) {
		for i, path := range paths {
			c.put(path, []string{tier("secure"), calicoPolicy("", "all", 1), calicoPolicy("bank", "deny", 1)}[i])
		}
	}
	all := []string{"+policy gnp/all 1", "+policy np/bank/deny 1", "+tier secure"}
	inCluster(t, func(c *cluster) {
		bothServed(c)
		same(c, tiersV1, globalV1, calicoV1)
		same(c, tiersV3, globalV3, calicoV3)
	}, func(c *cluster) {
		c.expect("at the start", append(slices.Clone(all), "in sync")...)
		c.wantRead("GlobalNetworkPolicy", "projectcalico.org/v3", "crd.projectcalico.org/v1")
		c.serveCalico(0, false)
		c.after(time.Minute)
		c.expect("it goes", all...)
		c.serveCalico(0, true)
		c.after(twoLooks)
		c.expect("it comes back", all...)
	})
}

// A group that cannot be asked is not taken for an empty one.
func TestKubernetesDoesNotDecideBetweenGroupsWithoutAnAnswer(t *testing.T) {
	for _, path := range []string{tiersV3, tiersV1} {
		inCluster(t, func(c *cluster) {
			bothServed(c)
			c.put(tiersV1, tier("secure"))
			c.put(tiersV3, tier("secure"))
			c.put(calicoV3, calicoPolicy("bank", "deny", 2))
			c.set(path, func(k *servedKind) { k.status = 500 })
		}, func(c *cluster) {
			c.after(10 * time.Minute)
			c.expect("without an answer")
			if k := c.kind("NetworkPolicy.projectcalico.org"); k.State != syncer.KindListing || !strings.Contains(k.Error, "500") {
				t.Errorf("%+v", k)
			}
			c.set(path, func(k *servedKind) { k.status = 0 })
			c.after(time.Minute)
			c.expect("with one", "+policy np/bank/deny 2", "+tier secure", "in sync")
		})
	}
}

// Looks are for all kinds together, and cost nothing once the first group is read.
func TestKubernetesLooksAtTheGroupsForAllKindsAtOnce(t *testing.T) {
	inCluster(t, func(c *cluster) {
		bothServed(c)
		c.put(tiersV1, tier("secure"))
	}, func(c *cluster) {
		c.seen("", true)
		c.after(time.Hour)
		var looks int
		for _, r := range c.seen(tiersV3, true) {
			if strings.Contains(r, "limit=") {
				looks++
			}
		}
		if looks < 20 || looks > 30 {
			t.Errorf("%d looks in an hour", looks)
		}
		c.put(tiersV3, tier("secure"))
		c.after(twoLooks + firstComparison + 10*time.Minute)
		c.seen("", true)
		c.after(compareEvery - time.Hour)
		for _, r := range c.seen("", false) {
			if strings.Contains(r, "limit=") || r == "/apis" {
				t.Fatalf("%s while the first group is read", r)
			}
		}
	})
}

// While an API server starts it may list one of the groups and not yet the other. That does not decide which of them is read.
func TestKubernetesDoesNotDecideBetweenGroupsByAStartingServersWord(t *testing.T) {
	for in, use := range [][2]string{{tiersV3, calicoV3}, {tiersV1, calicoV1}} {
		other := []string{calicoV3, calicoV1}[1-in]
		cluster2 := func(c *cluster) {
			bothServed(c)
			c.put(use[0], tier("secure"))
			c.put(use[1], calicoPolicy("bank", "deny", 1))
			c.put(other, calicoPolicy("bank", "deny", 2)) // of before a migration, or of one that has begun
		}
		lists := func(c *cluster, both bool) {
			c.serveCalico(in, both)
			c.readiness(map[bool]int{true: 200, false: 500}[both])
		}
		want := []string{"+policy np/bank/deny 1", "+tier secure", "in sync"}
		t.Run(use[0]+" when the agent starts", func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				cluster2(c)
				lists(c, false)
			}, func(c *cluster) {
				c.after(3 * time.Second)
				c.expect("starting")
				lists(c, true)
				c.after(5 * time.Minute)
				c.expect("started", want...)
			})
		})
		t.Run(use[0]+" when the server starts again", func(t *testing.T) {
			inCluster(t, cluster2, func(c *cluster) {
				c.expect("at first", want...)
				lists(c, false)
				c.after(3 * time.Second)
				c.expect("starting")
				lists(c, true)
				c.after(5 * time.Minute)
				c.expect("started")
			})
		})
		t.Run(use[0]+" when the server never is ready", func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				cluster2(c)
				lists(c, false)
			}, func(c *cluster) {
				c.after(15 * time.Second)
				c.expect("the group that is there", "+policy np/bank/deny 2", "in sync")
			})
		})
	}
}
