package syncer

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/kube"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// cluster is a Kubernetes source at work on a server in memory.
type cluster struct {
	*apiServer
	t      *testing.T
	source *Kubernetes
	log    *lockedBuffer

	mu      sync.Mutex
	state   map[model.Key]model.Update // what a consumer would know
	updates []string                   // since the last call of got
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// lines returns what was logged, without the times.
func (l *lockedBuffer) lines() (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		_, line, _ = strings.Cut(line, " ")
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	return lines
}

// inCluster runs a test in a bubble. prepare may change the server and the source before the source runs.
func inCluster(t *testing.T, prepare, test func(*cluster)) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{apiServer: newAPIServer(t), t: t, log: &lockedBuffer{}, state: map[model.Key]model.Update{}}
		path := filepath.Join(t.TempDir(), "kubeconfig")
		text := "clusters: [{name: c, cluster: {server: 'http://api'}}]\ncontexts: [{name: a, context: {cluster: c}}]\ncurrent-context: a\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		kube.QuietLibrary(slog.New(slog.DiscardHandler))
		client, err := kube.Open(kube.Options{Kubeconfig: path, Version: "test", Dial: c.dial})
		if err != nil {
			t.Fatal(err)
		}
		defer client.HTTP.CloseIdleConnections()
		c.source = NewKubernetes(client, slog.New(slog.NewTextHandler(c.log, nil)))
		if prepare != nil {
			prepare(c)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.source.Run(ctx, c.take) }()
		synctest.Wait()
		test(c)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

func (c *cluster) take(us []model.Update) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range us {
		key, present := model.KeyOf(u)
		switch {
		case key == model.InSyncKey:
			c.updates = append(c.updates, "in sync")
			continue
		case !present:
			delete(c.state, key)
		default:
			c.state[key] = u
		}
		c.updates = append(c.updates, short(u))
	}
}

// short writes an update as a test wants to see it.
func short(u model.Update) string {
	_, present := model.KeyOf(u)
	sign := map[bool]string{true: "+", false: "-"}[present]
	switch u := u.(type) {
	case model.EndpointUpdate:
		if present {
			return fmt.Sprintf("+pod %s %v", u.ID, u.Endpoint.Addrs)
		}
		return "-pod " + u.ID.String()
	case model.ProfileUpdate:
		return sign + "profile " + u.Name
	case model.PolicyUpdate:
		if present {
			return fmt.Sprintf("+policy %s %d", u.Key, len(u.Policy.Ingress))
		}
		return "-policy " + u.Key.String()
	case model.ServiceUpdate:
		return sign + "service " + u.Key.String()
	case model.EndpointSliceUpdate:
		return sign + "slice " + u.ID.Name
	case model.NodeUpdate:
		return sign + "node " + u.Name
	case model.ConfigurationUpdate:
		if present {
			return fmt.Sprintf("+configuration %s %v", u.Name, u.Configuration.Values)
		}
		return "-configuration " + u.Name
	}
	return fmt.Sprintf("%#v", u)
}

// got returns what was delivered since it was called last, in the order of the text unless one comes after the other
// for a reason.
func (c *cluster) got() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	us := c.updates
	c.updates = nil
	return us
}

func (c *cluster) expect(what string, want ...string) {
	c.t.Helper()
	got := c.got()
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		c.t.Errorf("%s: updates (-want +got):\n%s", what, diff)
	}
}

// after lets time pass.
func (c *cluster) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (c *cluster) kind(name string) KindStatus {
	c.t.Helper()
	for _, k := range c.source.Kinds() {
		if k.Kind == name {
			return k
		}
	}
	c.t.Fatalf("no kind %s in %v", name, c.source.Kinds())
	return KindStatus{}
}

// logged checks that each of the texts is in one line of the log, and that there is no other line.
func (c *cluster) logged(texts ...string) {
	c.t.Helper()
	lines := c.log.lines()
	if len(lines) != len(texts) {
		c.t.Errorf("%d lines logged, want %d:\n%s", len(lines), len(texts), strings.Join(lines, "\n"))
		return
	}
	for _, text := range texts {
		if n := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, text) }); n < 0 {
			c.t.Errorf("no line with %q:\n%s", text, strings.Join(lines, "\n"))
		}
	}
}

func pod(name, address string) string {
	return fmt.Sprintf(`{"metadata":{"namespace":"shop","name":%q,"labels":{"app":"web"}},"spec":{"nodeName":"n1"},"status":{"podIP":%q}}`, name, address)
}

func networkPolicy(name string, rules int, policyType string) string {
	return fmt.Sprintf(`{"metadata":{"namespace":"shop","name":%q},"spec":{"podSelector":{},"policyTypes":[%q],"ingress":[%s]}}`,
		name, policyType, strings.TrimSuffix(strings.Repeat("{},", rules), ","))
}

func onlyName(name string) string { return fmt.Sprintf(`{"metadata":{"name":%q}}`, name) }

// few fills the server with one object of each kind.
func few(c *cluster) {
	c.put(namespacesPath, onlyName("shop"))
	c.put(nodesPath, onlyName("n1"))
	c.put(podsPath, pod("web", "10.0.0.1"))
	c.put(servicesPath, `{"metadata":{"namespace":"shop","name":"web"},"spec":{"clusterIP":"10.96.0.1"}}`)
	c.put(accountsPath, `{"metadata":{"namespace":"shop","name":"default"}}`)
	c.put(slicesPath, `{"metadata":{"namespace":"shop","name":"web-1","labels":{"kubernetes.io/service-name":"web"}},"addressType":"IPv4"}`)
	c.put(policiesPath, networkPolicy("deny", 0, "Ingress"))
	c.set(felixV1Path, func(k *servedKind) { k.absent = false })
	c.put(felixV1Path, `{"metadata":{"name":"default"},"spec":{"routeTableRange":{"min":1},"interfacePrefix":"cali"}}`)
}

func TestKubernetesDeliversListsInSyncAndChanges(t *testing.T) {
	inCluster(t, few, func(c *cluster) {
		got := c.got()
		if n := len(got); n != 9 || got[n-1] != "in sync" || slices.Index(got, "in sync") != n-1 {
			t.Errorf("in sync is not delivered once, after all objects: %q", got)
		}
		for _, k := range c.source.Kinds() {
			if k.State != KindSynced || !k.Listed || k.Objects != 1 || k.Lists != 1 || k.Failures != 0 || k.Error != "" {
				t.Errorf("after the lists: %+v", k)
			}
		}
		c.put(podsPath, pod("db", "10.0.0.2"))
		c.put(podsPath, pod("web", "10.0.0.3"))
		c.expect("pods changed", "+pod shop/db [10.0.0.2]", "+pod shop/web [10.0.0.3]")
		c.remove(podsPath, "shop/web")
		c.remove(accountsPath, "shop/default")
		c.remove(policiesPath, "shop/deny")
		c.remove(namespacesPath, "<nil>/shop")
		c.remove(felixV1Path, "<nil>/default")
		c.expect("deleted", "-pod shop/web", "-profile ksa.shop.default", "-policy knp/shop/deny", "-profile kns.shop", "-configuration default")
		if k := c.kind("Pod"); k.Objects != 1 || k.Events != 3 || k.Lists != 1 {
			t.Errorf("after changes: %+v", k)
		}
		c.logged()
	})
}

func TestKubernetesNeedsNoNewListsForWatchesThatEnd(t *testing.T) {
	inCluster(t, few, func(c *cluster) {
		c.got()
		c.seen("", true)
		c.after(time.Hour) // watches end after five to ten minutes
		requests := c.seen(podsPath, false)
		if len(requests) < 6 || len(requests) > 12 {
			t.Errorf("%d requests in an hour", len(requests))
		}
		for _, r := range requests {
			if !strings.Contains(r, "watch=true") || strings.Contains(r, "sendInitialEvents") {
				t.Errorf("a list: %s", r)
			}
		}
		c.expect("an hour without changes")
		c.logged()
	})
}

func TestKubernetesWaitsForRequiredKindsAndSaysForWhich(t *testing.T) {
	for kind, path := range map[string]string{"Pod": podsPath, "Namespace": namespacesPath, "NetworkPolicy": policiesPath, "Service": servicesPath} {
		t.Run(kind, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				few(c)
				c.set(path, func(k *servedKind) { k.status = 403 })
			}, func(c *cluster) {
				c.after(10 * time.Minute)
				if got := c.got(); slices.Contains(got, "in sync") || len(got) != 7 {
					t.Errorf("delivered %q", got)
				}
				want := `forbidden: user "margay" may not list pods at the cluster scope; grant that to it with a ClusterRole`
				if k := c.kind(kind); k.State != KindListing || k.Listed || !k.Required || k.Error != want {
					t.Errorf("%+v", k)
				}
				c.set(path, func(k *servedKind) { k.status = 0 })
				c.after(30 * time.Second)
				if got := c.got(); len(got) != 2 || got[1] != "in sync" {
					t.Errorf("granted, delivered %q", got)
				}
				if k := c.kind(kind); k.State != KindSynced || !k.Listed || k.Error != "" {
					t.Errorf("%+v", k)
				}
				c.logged("nothing new is enforced before it has been listed", "is followed again")
			})
		})
	}
}

func TestKubernetesDoesNotWaitLongForOtherKinds(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault func(*servedKind)
		wait  time.Duration
		state KindState
	}{
		{"forbidden", func(k *servedKind) { k.status = 403 }, 0, KindFailing},
		{"failing", func(k *servedKind) { k.status = 500 }, 5 * time.Second, KindFailing},
		{"slow", func(k *servedKind) { k.slow = true }, 30 * time.Second, KindListing},
	} {
		for kind, path := range map[string]string{"Node": nodesPath, "EndpointSlice": slicesPath, "FelixConfiguration": felixV1Path} {
			t.Run(tt.name+" "+kind, func(t *testing.T) {
				inCluster(t, func(c *cluster) {
					few(c)
					c.set(path, tt.fault)
				}, func(c *cluster) {
					if tt.wait > 0 {
						c.after(tt.wait - time.Millisecond)
						if got := c.got(); slices.Contains(got, "in sync") {
							t.Errorf("in sync too early: %q", got)
						}
						c.after(2 * time.Millisecond)
					}
					if got := c.got(); !slices.Contains(got, "in sync") {
						t.Errorf("not in sync: %q", got)
					}
					if k := c.kind(kind); k.State != tt.state || k.Listed || k.Required {
						t.Errorf("%+v", k)
					}
				})
			})
		}
	}
}

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
				if k := c.kind("Pod"); k.State != KindFailing || k.Objects != 2 || !strings.Contains(k.Error, "http://api") {
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
					if !strings.Contains(r, "watch=true") && r != "/readyz" || strings.Contains(r, "sendInitialEvents") {
						lists++
					}
				}
				if !compacted && lists > 0 {
					t.Errorf("%d lists after the return", lists)
				}
				for _, k := range c.source.Kinds() {
					if k.State != KindSynced || k.Error != "" {
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
		if n := c.refused(false); n < 75 || n > 150 { // pauses are 400 to 800 ms
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
		c.logged("the API server cannot be reached", "the API server is reached again", "is not served by the cluster")
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
	inCluster(t, func(c *cluster) {
		few(c)
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
		if _, there := c.state[keyOf(model.EndpointUpdate{ID: model.EndpointID{Namespace: "shop", Name: "gone"}})]; there {
			t.Errorf("a missed deletion was not found: %q", got)
		}
		if k := c.kind("Pod"); k.Lists != 2 || k.State != KindSynced || k.Objects != 3 {
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
				if got := c.got(); len(got) != 9 || got[8] != "in sync" {
					t.Errorf("delivered %q", got)
				}
				c.put(podsPath, pod("new", "10.0.0.2"))
				c.expect("a change", "+pod shop/new [10.0.0.2]")
				c.logged()
			})
		})
	}
}

func TestKubernetesKeepsTheLastGoodVersion(t *testing.T) {
	inCluster(t, few, func(c *cluster) {
		c.got()
		c.put(policiesPath, networkPolicy("deny", 1, "Sideways"))
		c.put(policiesPath, networkPolicy("never", 1, "Sideways"))
		c.expect("invalid")
		problems := func(want ...string) {
			t.Helper()
			var got []string
			for _, p := range c.source.Problems() {
				got = append(got, p.String())
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		}
		if got := c.source.Problems(); len(got) != 2 || got[0].Ref.Name != "deny" || got[1].Ref.Name != "never" ||
			!strings.HasSuffix(got[0].Reason, "; the last good version stays in force") || strings.Contains(got[1].Reason, "stays in force") ||
			got[0].Severity != validate.Rejected {
			t.Errorf("problems %v", got)
		}
		c.compact(policiesPath)
		c.cut(policiesPath)
		c.after(time.Second)
		c.expect("listed anew")
		if got := c.source.Problems(); len(got) != 2 || !strings.HasSuffix(got[0].Reason, "stays in force") {
			t.Errorf("problems after a new list %v", got)
		}
		c.put(policiesPath, networkPolicy("never", 2, "Ingress"))
		c.expect("mended", "+policy knp/shop/never 2")
		c.remove(policiesPath, "shop/deny")
		c.expect("deleted", "-policy knp/shop/deny")
		problems()
		c.put(policiesPath, `{"metadata":{"namespace":"shop","name":"odd"},"spec":{"podSelector":{},"policyTypes":["Egress"],"ingress":[{}]}}`)
		c.expect("a warning", "+policy knp/shop/odd 0")
		problems("NetworkPolicy shop/odd: warning: spec.ingress: the rules mean nothing, because policyTypes does not name Ingress")
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
		if p := c.source.Problems(); len(p) != 1 || p[0].Ref.Name != "broken" || p[0].Severity != validate.Rejected {
			t.Errorf("problems %v", p)
		}
		if k := c.kind("FelixConfiguration"); k.State != KindSynced {
			t.Errorf("%+v", k)
		}
	})
}

func TestKubernetesFindsACustomKindThatComesAndGoes(t *testing.T) {
	inCluster(t, nil, func(c *cluster) {
		if got := c.got(); len(got) != 1 || got[0] != "in sync" {
			t.Errorf("without CRDs: %q", got)
		}
		if k := c.kind("FelixConfiguration"); k.State != KindAbsent || !k.Listed || !strings.Contains(k.Error, "felixconfigurations of projectcalico.org/v3") {
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
		c.after(3 * time.Minute)
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
		if k := c.kind("FelixConfiguration"); k.State != KindAbsent || k.Objects != 0 {
			t.Errorf("%+v", k)
		}
	})
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
		if k := c.kind("Pod"); k.State != KindFailing || k.Objects != 1 || !strings.Contains(k.Error, "500") {
			t.Errorf("%+v", k)
		}
		c.put(podsPath, pod("new", "10.0.0.2"))
		c.set(podsPath, func(k *servedKind) { k.status = 0 })
		c.after(30 * time.Second)
		c.expect("mended", "+pod shop/new [10.0.0.2]")
		if k := c.kind("Pod"); k.State != KindSynced || k.Lists != 1 {
			t.Errorf("%+v", k)
		}
		c.logged("cannot be followed, will try again; what is known of it stays in force", "is followed again")
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

func TestKubernetesNamesInterfaces(t *testing.T) {
	inCluster(t, func(c *cluster) {
		few(c)
		c.put(podsPath, strings.Replace(pod("far", "10.0.0.2"), "n1", "n2", 1))
		c.source.InterfacePrefix, c.source.Node = "tap", "n1"
	}, func(c *cluster) {
		for name, want := range map[string]string{"web": validate.PodInterface("tap", "shop", "web"), "far": ""} {
			u, _ := c.state[keyOf(model.EndpointUpdate{ID: model.EndpointID{Namespace: "shop", Name: name}})].(model.EndpointUpdate)
			if u.Endpoint == nil || u.Endpoint.Iface != want {
				t.Errorf("%s: %+v, want interface %q", name, u.Endpoint, want)
			}
		}
	})
}

var _ Source = (*Kubernetes)(nil)
