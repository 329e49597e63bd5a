package kubernetes

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
)

func TestKubernetesKeepsAllThroughAnOutageAndIsBackWithinASecond(t *testing.T) {
	for _, compacted := range []bool{false, true} {
		t.Run(fmt.Sprintf("compacted %v", compacted), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				few(c)
				c.put(podsPath, pod("gone", "10.0.0.9"))
			}, func(c *cluster) {
				c.got()
				c.after(time.Minute)
				c.stop()
				c.seen("", true)
				c.after(2 * time.Minute)
				c.expect("during the outage")
				if k := c.kind("Pod"); k.State != syncer.KindFailing || k.Objects != 2 || !strings.Contains(k.Error, "http://api") {
					t.Errorf("during the outage: %+v", k)
				}
				c.remove(podsPath, "shop/gone")
				c.put(podsPath, pod("new", "10.0.0.2"))
				c.put(policiesPath, networkPolicy("deny", 1, "Ingress"))
				if compacted {
					for path := range c.kinds {
						c.compact(path)
					}
				}
				c.start()
				c.after(time.Second)
				c.expect("a second after the return", "-pod shop/gone", "+pod shop/new [10.0.0.2]", "+policy knp/shop/deny 1")
				lists := 0
				for _, r := range c.seen("", false) {
					if !strings.Contains(r, "watch=true") && r != "/readyz" && r != namespacesPath+"?limit=1" || strings.Contains(r, "sendInitialEvents") {
						lists++
					}
				}
				if !compacted && lists > 0 {
					t.Errorf("%d lists after the return", lists)
				}
				for _, k := range c.reports.Kinds() {
					if k.State != syncer.KindSynced || k.Error != "" {
						t.Errorf("after the return: %+v", k)
					}
				}
				c.logged("the API server cannot be reached", "the API server is reached again")
			})
		})
	}
}

func TestKubernetesAsksForAnAbsentServerAboutOnceInASecond(t *testing.T) {
	inCluster(t, func(c *cluster) { c.stop() }, func(c *cluster) {
		c.refused(true)
		c.after(time.Minute)
		if n := c.refused(false); n < 100 || n > 200 { // pauses are 300 to 600 ms
			t.Errorf("%d attempts to connect in a minute, of all kinds together", n)
		}
		c.start()
		c.after(time.Second)
		if got := c.got(); !slices.Contains(got, "in sync") {
			t.Errorf("a second after the start of the server: %q", got)
		}
		if n := len(c.seen("/readyz", false)); n != 1 {
			t.Errorf("%d questions whether the server is ready, of all kinds together", n)
		}
		c.logged("the API server cannot be reached", "the API server is reached again")
	})
}

func TestKubernetesLeavesAStartingServerAlone(t *testing.T) {
	inCluster(t, few, func(c *cluster) {
		c.got()
		c.stop()
		c.after(time.Minute)
		c.readiness(500)
		c.start()
		c.seen("", true)
		c.after(5 * time.Second)
		for _, r := range c.seen("", false) {
			if r != "/readyz" {
				t.Errorf("request %s before the server is ready", r)
			}
		}
		c.readiness(200)
		c.put(podsPath, pod("new", "10.0.0.2"))
		c.after(time.Second)
		c.expect("ready", "+pod shop/new [10.0.0.2]")
	})
}

func TestKubernetesGoesOnWithoutReadiness(t *testing.T) {
	for status, patience := range map[int]time.Duration{403: 4 * time.Second, 500: 12 * time.Second} {
		inCluster(t, few, func(c *cluster) {
			c.got()
			c.readiness(status)
			c.stop()
			c.after(time.Minute)
			c.start()
			c.put(podsPath, pod("new", "10.0.0.2"))
			c.after(patience)
			c.expect(fmt.Sprintf("readiness is %d", status), "+pod shop/new [10.0.0.2]")
		})
	}
}

func TestKubernetesListsAnewWhenHistoryIsForgotten(t *testing.T) {
	for _, early := range []bool{false, true} {
		t.Run(fmt.Sprintf("said early %v", early), func(t *testing.T) { testForgottenHistory(t, early) })
	}
}

func testForgottenHistory(t *testing.T, early bool) {
	inCluster(t, func(c *cluster) {
		few(c)
		c.set(podsPath, func(k *servedKind) { k.goneEarly = early })
		c.put(podsPath, pod("gone", "10.0.0.9"))
	}, func(c *cluster) {
		c.got()
		c.set(podsPath, func(k *servedKind) { k.changed = make(chan struct{}) }) // what follows is not announced
		c.remove(podsPath, "shop/gone")
		c.put(podsPath, pod("new", "10.0.0.2"))
		c.got()
		c.put(podsPath, pod("more", "10.0.0.3"))
		c.compact(podsPath)
		c.cut(podsPath)
		c.after(200 * time.Millisecond)
		got := c.got()
		for _, u := range got {
			if strings.Contains(u, "shop/web") {
				t.Errorf("what did not change was sent again: %s", u)
			}
		}
		if _, there := c.state[keyOf(model.EndpointUpdate{ID: model.WorkloadID("shop", "gone")})]; there {
			t.Errorf("a missed deletion was not found: %q", got)
		}
		if k := c.kind("Pod"); k.Lists != 2 || k.State != syncer.KindSynced || k.Objects != 3 {
			t.Errorf("%+v", k)
		}
		c.logged()
	})
}

func keyOf(u model.Update) model.Key {
	k, _ := model.KeyOf(u)
	return k
}

func TestKubernetesResumesFromBookmarks(t *testing.T) {
	inCluster(t, few, func(c *cluster) {
		c.got()
		c.after(time.Second)
		c.bookmark(podsPath)
		synctest.Wait()
		want := fmt.Sprintf("resourceVersion=%d&", c.version)
		c.seen("", true)
		c.cut(podsPath)
		synctest.Wait()
		if got := c.seen(podsPath, false); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("requests after a bookmark %q, want one with %s", got, want)
		}
	})
}

func TestKubernetesUnderstandsServersThatDoNotStreamLists(t *testing.T) {
	for name, fault := range map[string]func(*servedKind){
		"refused": func(k *servedKind) { k.noStreams = true },
		"ignored": func(k *servedKind) { k.oldStreams = true },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				few(c)
				for path := range c.kinds {
					c.set(path, fault)
				}
			}, func(c *cluster) {
				c.after(streamPatience + time.Second)
				if got := c.got(); len(got) != perKind+1 || got[perKind] != "in sync" {
					t.Errorf("delivered %q", got)
				}
				c.put(podsPath, pod("new", "10.0.0.2"))
				c.expect("a change", "+pod shop/new [10.0.0.2]")
				c.logged()
			})
		})
	}
}

func TestKubernetesKeepsItsDistanceFromAServerInTrouble(t *testing.T) {
	inCluster(t, few, func(c *cluster) {
		c.got()
		c.set(podsPath, func(k *servedKind) { k.status = 500 })
		c.seen("", true)
		c.cut(podsPath)
		c.after(10 * time.Minute)
		if n := len(c.seen(podsPath, false)); n < 20 || n > 60 {
			t.Errorf("%d requests in ten minutes", n)
		}
		if n := len(c.seen(policiesPath, false)); n > 2 {
			t.Errorf("%d requests of another kind", n)
		}
		if k := c.kind("Pod"); k.State != syncer.KindFailing || k.Objects != 1 || !strings.Contains(k.Error, "500") {
			t.Errorf("%+v", k)
		}
		c.put(podsPath, pod("new", "10.0.0.2"))
		c.set(podsPath, func(k *servedKind) { k.status = 0 })
		c.after(30 * time.Second)
		c.expect("mended", "+pod shop/new [10.0.0.2]")
		if k := c.kind("Pod"); k.State != syncer.KindSynced || k.Lists != 1 {
			t.Errorf("%+v", k)
		}
		c.logged("cannot be followed, will try again; its last known objects stay in force", "is followed again")
	})
}

func TestKubernetesForgetsItsPatienceWhenTheServerIsBack(t *testing.T) {
	inCluster(t, few, func(c *cluster) {
		c.got()
		c.set(podsPath, func(k *servedKind) { k.status = 500 })
		c.cut(podsPath)
		c.after(10 * time.Minute) // pauses have become long
		c.cut(policiesPath)
		c.stop()
		c.after(2 * time.Second)
		c.set(podsPath, func(k *servedKind) { k.status = 0 })
		c.put(podsPath, pod("new", "10.0.0.2"))
		c.start()
		c.after(time.Second)
		c.expect("a second after the return", "+pod shop/new [10.0.0.2]")
	})
}

func TestKubernetesComesBackWhenTheServerAsksItTo(t *testing.T) {
	inCluster(t, few, func(c *cluster) {
		c.got()
		c.set(podsPath, func(k *servedKind) { k.status, k.retryAfter = 429, "20" })
		c.cut(podsPath)
		synctest.Wait()
		c.seen("", true)
		c.after(19 * time.Second)
		if n := len(c.seen(podsPath, false)); n > 0 {
			t.Errorf("%d requests within the time the server asked for", n)
		}
		c.after(12 * time.Second)
		if n := len(c.seen(podsPath, false)); n != 1 {
			t.Errorf("%d requests after it", n)
		}
	})
}

func TestKubernetesIsNotHurriedByWatchesThatFailAtOnce(t *testing.T) {
	for name, fault := range map[string]func(*servedKind){
		"error event":  func(k *servedKind) { k.failEvent = 500 },
		"end":          func(k *servedKind) { k.closeAtOnce = true },
		"slow answers": func(k *servedKind) { k.slow = true },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, few, func(c *cluster) {
				c.got()
				c.after(time.Minute)
				c.set(podsPath, fault)
				c.seen("", true)
				c.cut(podsPath)
				c.after(10 * time.Minute)
				if n := len(c.seen(podsPath, false)); n > 100 {
					t.Errorf("%d requests in ten minutes", n)
				}
				c.expect("meanwhile")
			})
		})
	}
}

func TestKubernetesComplainsOnceOfConnectionsThatBreak(t *testing.T) {
	inCluster(t, few, func(c *cluster) {
		c.got()
		c.after(time.Minute)
		c.set(podsPath, func(k *servedKind) { k.abort = true })
		c.cut(podsPath)
		c.after(10 * time.Minute)
		if k := c.kind("Pod"); k.State != syncer.KindFailing || k.Error == "" {
			t.Errorf("%+v", k)
		}
		c.logged("its last known objects stay in force")
	})
}

func TestKubernetesTakesNothingFromAListThatBreaks(t *testing.T) {
	inCluster(t, few, func(c *cluster) {
		c.got()
		c.compact(podsPath)
		c.set(podsPath, func(k *servedKind) { k.oldStreams = true }) // objects come, and never the end
		c.cut(podsPath)
		c.put(podsPath, pod("new", "10.0.0.2"))
		c.after(time.Second)
		c.stop()
		c.after(time.Minute)
		c.expect("a list that was cut off")
		c.set(podsPath, func(k *servedKind) { k.oldStreams = false })
		c.start()
		c.after(time.Second)
		c.expect("a whole list", "+pod shop/new [10.0.0.2]")
	})
}

// A server that is restored may be too busy to say which version it has come to: all agents ask at once. It is asked until it does.
func TestKubernetesAsksABusyServerAgainWhetherItHasLostItsEnd(t *testing.T) {
	for _, path := range []string{namespacesPath, policiesPath} {
		for _, code := range []int{429, 500} {
			inCluster(t, func(c *cluster) {
				few(c)
				c.version = 5000
				c.put(policiesPath, networkPolicy("open", 1, "Ingress"))
			}, func(c *cluster) {
				c.got()
				c.bookmark(namespacesPath)
				c.stop()
				c.after(time.Minute)
				c.restore(1000)
				c.lose(policiesPath, "shop/open")
				c.set(path, func(k *servedKind) { k.status = code })
				c.start()
				c.after(3 * time.Second)
				c.set(path, func(k *servedKind) { k.status = 0 })
				c.after(time.Minute)
				if got := c.got(); !slices.Contains(got, "-policy knp/shop/open") {
					t.Errorf("%s had answered %d: after the restore %q", path, code, got)
				}
			})
		}
	}
}

// The restored server gives the version of an object that it has lost to its successor.
func TestKubernetesComparesNoVersionsWithAServerThatHasLostItsEnd(t *testing.T) {
	inCluster(t, func(c *cluster) {
		few(c)
		c.version = 1000
	}, func(c *cluster) {
		c.got()
		c.put(policiesPath, networkPolicy("open", 1, "Ingress"))
		c.after(time.Minute)
		c.version = 5000
		c.bookmark(policiesPath)
		c.bookmark(namespacesPath)
		c.after(time.Second)
		c.stop()
		c.after(time.Minute)
		c.restore(1000)
		c.lose(policiesPath, "shop/open")
		c.put(policiesPath, networkPolicy("open", 2, "Ingress"))
		c.got()
		c.start()
		c.after(time.Minute)
		if got := c.got(); !slices.Contains(got, "+policy knp/shop/open 2") {
			t.Errorf("after the restore: %q", got)
		}
	})
}

// A server whose etcd was restored from a backup has lower versions than the agent has seen. It accepts watches from those, and they get
// nothing of what happens until it has reached them.
func TestKubernetesListsAnewWhenTheServerHasLostItsEnd(t *testing.T) {
	inCluster(t, func(c *cluster) {
		few(c)
		c.version = 5000
		c.put(podsPath, pod("gone", "10.0.0.9"))
		c.put(policiesPath, networkPolicy("open", 1, "Ingress"))
	}, func(c *cluster) {
		c.got()
		c.bookmark(namespacesPath)
		c.stop()
		c.after(time.Minute)
		c.restore(1000)
		c.lose(podsPath, "shop/gone")
		c.lose(policiesPath, "shop/open")
		c.start()
		c.after(2 * time.Second)
		gone := slices.DeleteFunc(c.got(), func(u string) bool { return u[0] == '+' }) // what is there still is said again
		if slices.Sort(gone); !slices.Equal(gone, []string{"-pod shop/gone", "-policy knp/shop/open"}) {
			t.Errorf("restored: %q", gone)
		}
		c.put(podsPath, pod("new", "10.0.0.2"))
		c.put(policiesPath, networkPolicy("deny", 2, "Ingress"))
		c.after(time.Second)
		c.expect("after that", "+pod shop/new [10.0.0.2]", "+policy knp/shop/deny 2")
		c.logged("the API server cannot be reached", "the API server is reached again", "the API server has lost the end of its history")
		c.seen("", true)
		c.stop()
		c.after(time.Minute)
		c.start()
		c.after(time.Second)
		lists := slices.DeleteFunc(c.seen("", false), func(r string) bool { return strings.Contains(r, "watch=true") })
		if want := []string{"/readyz", namespacesPath + "?limit=1"}; !slices.Equal(lists, want) {
			t.Errorf("after an outage that has cost nothing: %q, want %q besides watches", lists, want)
		}
	})
}
