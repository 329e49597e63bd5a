package kubernetes

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

func TestKubernetesKeepsTheLastGoodVersion(t *testing.T) {
	inCluster(t, few, func(c *cluster) {
		c.got()
		c.put(policiesPath, unusable("deny", 1))
		c.put(policiesPath, unusable("never", 1))
		c.put(policiesPath, unusable("never", 2))
		c.put(policiesPath, unusable("deny", 2))
		c.expect("invalid")
		problems := func(want ...string) {
			t.Helper()
			var got []string
			for _, p := range c.reports.Problems() {
				got = append(got, p.String())
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		}
		if got := c.reports.Problems(); len(got) != 2 || got[0].Ref.Name != "deny" || got[1].Ref.Name != "never" ||
			!strings.HasSuffix(got[0].Reason, "; the last good version stays in force") || strings.Contains(got[1].Reason, "stays in force") ||
			got[0].Severity != validate.Rejected {
			t.Errorf("problems %v", got)
		}
		c.compact(policiesPath)
		c.cut(policiesPath)
		c.after(time.Second)
		c.expect("listed anew")
		if got := c.reports.Problems(); len(got) != 2 || !strings.HasSuffix(got[0].Reason, "stays in force") {
			t.Errorf("problems after a new list %v", got)
		}
		c.put(policiesPath, networkPolicy("never", 2, "Ingress"))
		c.expect("mended", "+policy knp/shop/never 2")
		c.remove(policiesPath, "shop/deny")
		c.expect("deleted", "-policy knp/shop/deny")
		problems()
		c.put(policiesPath, `{"metadata":{"namespace":"shop","name":"odd"},"spec":{"podSelector":{},"policyTypes":["Egress"],"ingress":[{}]}}`)
		c.expect("a warning", "+policy knp/shop/odd 0")
		problems("NetworkPolicy shop/odd: warning: spec.ingress: the rules have no effect, because policyTypes does not contain Ingress")
	})
}

// TestKubernetesTakesNoGoodVersionFromAPredecessor: an object that is deleted and made again under its name, invalid, is a problem
// without a version in force. It does not depend on whether the watch was up in between.
func TestKubernetesTakesNoGoodVersionFromAPredecessor(t *testing.T) {
	for _, missed := range []bool{false, true} {
		t.Run(fmt.Sprintf("deletion missed %v", missed), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				few(c)
				c.put(policiesPath, withUID("again", "1", networkPolicy("again", 1, "Ingress")))
				c.put(policiesPath, withUID("same", "2", networkPolicy("same", 1, "Ingress")))
			}, func(c *cluster) {
				c.got()
				if missed {
					c.stop()
					c.after(time.Minute)
				}
				c.remove(policiesPath, "shop/again")
				if !missed {
					c.after(time.Second)
				}
				c.put(policiesPath, withUID("again", "3", unusable("again", 1)))
				c.put(policiesPath, withUID("same", "2", unusable("same", 1)))
				if missed {
					c.compact(policiesPath)
					c.start()
				}
				c.after(time.Second)
				c.expect("made again, and invalid", "-policy knp/shop/again")
				if got := c.reports.Problems(); len(got) != 2 || got[0].Ref.Name != "again" || got[0].Severity != validate.Rejected ||
					strings.Contains(got[0].Reason, "stays in force") || !strings.HasSuffix(got[1].Reason, "; the last good version stays in force") {
					t.Errorf("problems %v", got)
				}
				c.put(policiesPath, withUID("again", "3", networkPolicy("again", 2, "Ingress")))
				c.expect("corrected", "+policy knp/shop/again 2")
			})
		})
	}
}

// TestKubernetesKeepsTheLastGoodVersionFromTheOtherGroup: Calico's API server gives an object another UID than its custom resource has.
func TestKubernetesKeepsTheLastGoodVersionFromTheOtherGroup(t *testing.T) {
	broken := strings.Replace(calicoPolicy("shop", "db", 1), "all()", "has(", 1)
	inCluster(t, func(c *cluster) {
		c.serveCalico(1, true)
		c.put(tiersV1, tier("secure"))
		c.put(calicoV1, withUID("db", "1", calicoPolicy("shop", "db", 1)))
	}, func(c *cluster) {
		c.put(calicoV1, withUID("db", "1", broken))
		c.got()
		c.serveCalico(0, true)
		c.put(tiersV3, tier("secure"))
		c.put(calicoV3, withUID("db", "2", broken))
		c.after(twoLooks)
		for _, u := range c.got() {
			if strings.Contains(u, "-policy") {
				t.Errorf("the other group: %s", u)
			}
		}
		c.wantRead("NetworkPolicy.projectcalico.org", "projectcalico.org/v3", "crd.projectcalico.org/v1")
		if p := c.reports.Problems(); len(p) != 1 || !strings.HasSuffix(p[0].Reason, "; the last good version stays in force") {
			t.Errorf("problems %v", p)
		}
		c.put(calicoV3, withUID("db", "3", broken))
		c.expect("another object", "-policy np/shop/db")
	})
}

// withUID gives an object of a name a UID.
func withUID(name, uid, object string) string {
	return strings.Replace(object, fmt.Sprintf(`"name":%q`, name), fmt.Sprintf(`"name":%q,"uid":%q`, name, uid), 1)
}

// unusable is a NetworkPolicy whose selector cannot be read, with so many rules.
func unusable(name string, rules int) string {
	return strings.Replace(networkPolicy(name, rules, "Ingress"), `"podSelector":{}`, `"podSelector":{"matchExpressions":[{"key":"a","operator":"Near"}]}`, 1)
}

// TestKubernetesSeesWhatANewerServerHasInNetworkPolicies: fields that the types of client-go do not have, in lists and in watches.
func TestKubernetesSeesWhatANewerServerHasInNetworkPolicies(t *testing.T) {
	newer := func(name string) string {
		return `{"metadata":{"namespace":"shop","name":"` + name + `","shard":"a"},"spec":{"podSelector":{},"policyTypes":["Ingress"],
			"ingress":[{"from":[{"fqdn":"example.com"}]},{"ports":[{"protocol":"QUIC"}]},{}]}}`
	}
	inCluster(t, func(c *cluster) {
		few(c)
		c.put(policiesPath, newer("listed"))
	}, func(c *cluster) {
		c.got()
		c.put(policiesPath, newer("watched"))
		c.expect("watched", "+policy knp/shop/watched 3")
		var got []string
		for _, p := range c.reports.Problems() {
			got = append(got, p.String())
		}
		want := []string{}
		for _, name := range []string{"listed", "watched"} {
			want = append(want, "NetworkPolicy shop/"+name+": rules left out: spec.ingress[0].from[0].fqdn: unknown field; the rule allows nothing",
				"NetworkPolicy shop/"+name+`: rules left out: spec.ingress[1].ports[0].protocol: Unsupported value: "QUIC": supported values: "TCP", "UDP", "SCTP"; the rule allows nothing`)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("problems (-want +got):\n%s", diff)
		}
	})
}

func TestKubernetesReportsAnObjectOfACustomKindThatCannotBeRead(t *testing.T) {
	inCluster(t, func(c *cluster) {
		few(c)
		c.put(felixV1Path, `{"metadata":{"name":"broken"},"spec":"all of it"}`)
	}, func(c *cluster) {
		got := c.got()
		if !slices.ContainsFunc(got, func(u string) bool { return strings.HasPrefix(u, "+configuration default") }) || !slices.Contains(got, "in sync") {
			t.Errorf("delivered %q", got)
		}
		if p := c.reports.Problems(); len(p) != 1 || p[0].Ref.Name != "broken" || p[0].Severity != validate.Rejected {
			t.Errorf("problems %v", p)
		}
		if k := c.kind("FelixConfiguration"); k.State != syncer.KindSynced {
			t.Errorf("%+v", k)
		}
	})
}

func TestKubernetesNamesInterfaces(t *testing.T) {
	inCluster(t, func(c *cluster) {
		few(c)
		c.put(podsPath, strings.Replace(pod("far", "10.0.0.2"), "n1", "n2", 1))
		c.newSource(validate.Pods{Prefix: "tap", Node: "n1"})
	}, func(c *cluster) {
		for name, want := range map[string]string{"web": validate.PodInterface("tap", "shop", "web"), "far": ""} {
			u, _ := c.state[keyOf(model.EndpointUpdate{ID: model.WorkloadID("shop", name)})].(model.EndpointUpdate)
			if u.Endpoint == nil || u.Endpoint.Iface != want {
				t.Errorf("%s: %+v, want interface %q", name, u.Endpoint, want)
			}
		}
	})
}

func TestKubernetesFindsACustomKindThatComesAndGoes(t *testing.T) {
	inCluster(t, nil, func(c *cluster) {
		if got := c.got(); len(got) != 1 || got[0] != "in sync" {
			t.Errorf("without CRDs: %q", got)
		}
		if k := c.kind("FelixConfiguration"); k.State != syncer.KindAbsent || !k.Listed || !strings.Contains(k.Error, "felixconfigurations of projectcalico.org/v3") {
			t.Errorf("%+v", k)
		}
		c.seen("", true)
		c.after(time.Hour)
		if n := len(c.seen("/apis", false)); n < 20 || n > 60 {
			t.Errorf("asked %d times in an hour", n)
		}
		const configuration = `{"metadata":{"name":"default"},"spec":{"a":"%s"}}`
		c.set(felixV1Path, func(k *servedKind) { k.absent = false })
		c.put(felixV1Path, fmt.Sprintf(configuration, "v1"))
		c.after(3 * time.Minute)
		c.expect("installed", "+configuration default map[a:v1]")

		c.set(felixV3Path, func(k *servedKind) { k.absent = false })
		c.put(felixV3Path, fmt.Sprintf(configuration, "v3"))
		c.after(twoLooks)
		c.expect("the better one", "+configuration default map[a:v3]")
		c.put(felixV1Path, fmt.Sprintf(configuration, "v1 again"))
		c.expect("a change in the other one")

		c.set(felixV3Path, func(k *servedKind) { k.absent = true })
		c.cut(felixV3Path)
		c.after(time.Second)
		c.expect("only the other one is left", "+configuration default map[a:v1 again]")

		c.set(felixV1Path, func(k *servedKind) { k.absent = true })
		c.cut(felixV1Path)
		c.after(time.Second)
		c.expect("removed", "-configuration default")
		if k := c.kind("FelixConfiguration"); k.State != syncer.KindAbsent || k.Objects != 0 {
			t.Errorf("%+v", k)
		}
	})
}

func TestKubernetesDoesNotTakeAFailingServerForAnAbsentKind(t *testing.T) {
	inCluster(t, func(c *cluster) {
		few(c)
		c.set(felixV3Path, func(k *servedKind) { k.absent, k.discovery = false, 503 })
	}, func(c *cluster) {
		c.after(time.Second)
		got := c.got()
		if !slices.ContainsFunc(got, func(u string) bool { return strings.HasPrefix(u, "+configuration") }) {
			t.Errorf("the group that is there was not read: %q", got)
		}
		c.set(felixV1Path, func(k *servedKind) { k.absent = true })
		c.cut(felixV1Path)
		c.after(time.Minute)
		c.expect("the one group is gone, the other fails")
		if k := c.kind("FelixConfiguration"); k.State != syncer.KindFailing || !strings.Contains(k.Error, "503") {
			t.Errorf("%+v", k)
		}
	})
}

// While an API server starts, its list of groups lacks those of CRDs that it has not read yet.
func TestKubernetesDoesNotTakeAStartingServersWordForAnAbsentKind(t *testing.T) {
	custom := func(c *cluster, absent bool) {
		for _, k := range kinds.Served(validate.Pods{}) {
			if k.Optional {
				gvr := k.GroupVersionResources()[len(k.Versions)-1]
				path := "/apis/" + gvr.GroupVersion().String() + "/" + gvr.Resource
				c.set(path, func(k *servedKind) { k.absent = absent })
				c.cut(path)
			}
		}
	}
	t.Run("when the agent starts", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			few(c)
			custom(c, true)
			c.readiness(500)
		}, func(c *cluster) {
			c.after(3 * time.Second)
			if got := c.got(); slices.Contains(got, "in sync") {
				t.Errorf("in sync with what a starting server has: %q", got)
			}
			custom(c, false)
			c.readiness(200)
			c.after(2 * time.Second)
			if got := c.got(); len(got) == 0 || got[len(got)-1] != "in sync" || !slices.Contains(got, "+policy gnp/one 0") {
				t.Errorf("the server has started: %q", got)
			}
			c.logged("the API server cannot be reached or is not ready", "the API server is reached again")
		})
	})
	t.Run("when the server is not found for a moment", func(t *testing.T) {
		inCluster(t, few, func(c *cluster) {
			c.after(time.Minute)
			c.got()
			c.readiness(500)
			custom(c, true)
			c.after(3 * time.Second)
			c.expect("starting")
			custom(c, false)
			c.readiness(200)
			c.after(5 * time.Minute)
			c.expect("started")
		})
	})
	t.Run("it never is ready", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			few(c)
			custom(c, true)
			c.readiness(500)
		}, func(c *cluster) {
			c.after(15 * time.Second)
			if got := c.got(); !slices.Contains(got, "in sync") {
				t.Errorf("not in sync: %q", got)
			}
		})
	})
}
