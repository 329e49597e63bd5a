package kubernetes

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

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/kube"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// cluster is a Kubernetes source at work on a server in memory.
type cluster struct {
	*apiServer
	t       *testing.T
	source  *Source
	reports *syncer.Reports // of the stream
	client  *kube.Client
	log     *lockedBuffer

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

// newSource makes the source that runs, which reads pods so.
func (c *cluster) newSource(pods validate.Pods) {
	c.reports = syncer.NewReports()
	c.source = New(c.client, pods, slog.New(slog.NewTextHandler(c.log, nil)))
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
		c.client = client
		c.newSource(validate.Pods{})
		if prepare != nil {
			prepare(c)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.source.Run(ctx, c.take) }()
		synctest.Wait()
		test(c)
		before := len(c.log.lines())
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
		if said := c.log.lines()[before:]; len(said) > 0 {
			t.Errorf("said at the end: %q", said)
		}
	})
}

func (c *cluster) take(b syncer.Batch) {
	c.reports.Note(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range b.Updates {
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
	case model.TierUpdate:
		return sign + "tier " + u.Name
	case model.NetworkSetUpdate:
		return sign + "set " + u.ID.String()
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

func (c *cluster) kind(name string) syncer.KindStatus {
	c.t.Helper()
	for _, k := range c.reports.Kinds() {
		if k.Kind == name {
			return k
		}
	}
	c.t.Fatalf("no kind %s in %v", name, c.reports.Kinds())
	return syncer.KindStatus{}
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
	c.put(clusterPath, `{"metadata":{"name":"guard"},"spec":{"tier":"Admin","priority":1,"subject":{"namespaces":{}}}}`)
	c.set(felixV1Path, func(k *servedKind) { k.absent = false })
	c.put(felixV1Path, `{"metadata":{"name":"default"},"spec":{"routeTableRange":{"min":1},"interfacePrefix":"cali"}}`)
	for _, k := range kinds.Served(validate.Pods{}) {
		if len(k.Versions) == 1 || k.Name == "FelixConfiguration" {
			continue // made above
		}
		gvr := k.GroupVersionResources()[1]
		path := "/apis/" + gvr.GroupVersion().String() + "/" + gvr.Resource
		c.set(path, func(k *servedKind) { k.absent = false })
		namespace := ""
		if k.Namespaced {
			namespace = `"namespace":"shop",`
		}
		c.put(path, fmt.Sprintf(`{"metadata":{%s"name":"one"},"spec":{}}`, namespace))
	}
}

// perKind is how many objects few makes, one of each kind.
var perKind = len(kinds.Served(validate.Pods{}))

func TestKubernetesDeliversListsInSyncAndChanges(t *testing.T) {
	inCluster(t, few, func(c *cluster) {
		got := c.got()
		if n := len(got); n != perKind+1 || got[n-1] != "in sync" || slices.Index(got, "in sync") != n-1 {
			t.Errorf("in sync is not delivered once, after all objects: %q", got)
		}
		for _, k := range c.reports.Kinds() {
			if k.State != syncer.KindSynced || !k.Listed || k.Objects != 1 || k.Lists != 1 || k.Failures != 0 || k.Error != "" {
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
		c.remove(clusterPath, "<nil>/guard")
		c.remove(felixV1Path, "<nil>/default")
		c.expect("deleted", "-pod shop/web", "-profile ksa.shop.default", "-policy knp/shop/deny", "-policy kcnp/guard", "-profile kns.shop", "-configuration default")
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
	for kind, path := range map[string]string{"Pod": podsPath, "Namespace": namespacesPath, "NetworkPolicy": policiesPath, "Node": nodesPath,
		"ClusterNetworkPolicy": clusterPath, "FelixConfiguration": felixV1Path, "Service": servicesPath, "ServiceAccount": accountsPath, "EndpointSlice": slicesPath} {
		t.Run(kind, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				few(c)
				c.set(path, func(k *servedKind) { k.status = 403 })
			}, func(c *cluster) {
				c.after(10 * time.Minute)
				if got := c.got(); slices.Contains(got, "in sync") || len(got) != perKind-1 {
					t.Errorf("delivered %q", got)
				}
				want := `forbidden: user "margay" may not list pods at the cluster scope; grant that to it with a ClusterRole`
				if k := c.kind(kind); k.State != syncer.KindListing || k.Listed || !k.Required || k.Error != want {
					t.Errorf("%+v", k)
				}
				c.set(path, func(k *servedKind) { k.status = 0 })
				c.after(30 * time.Second)
				if got := c.got(); len(got) != 2 || got[1] != "in sync" {
					t.Errorf("granted, delivered %q", got)
				}
				if k := c.kind(kind); k.State != syncer.KindSynced || !k.Listed || k.Error != "" {
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
		state syncer.KindState
	}{
		{"forbidden", func(k *servedKind) { k.status = 403 }, 0, syncer.KindFailing},
		{"failing", func(k *servedKind) { k.status = 500 }, 5 * time.Second, syncer.KindFailing},
		{"slow", func(k *servedKind) { k.slow = true }, 30 * time.Second, syncer.KindListing},
	} {
		for kind, path := range map[string]string{"StagedNetworkPolicy": stagedPath} {
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

// A FelixConfiguration may say Drop: without it the programs of an earlier agent would be replaced by more open ones.
func TestKubernetesWaitsForConfigurationThroughAnOverload(t *testing.T) {
	inCluster(t, func(c *cluster) {
		few(c)
		c.put(felixV1Path, `{"metadata":{"name":"default"},"spec":{"defaultEndpointToHostAction":"Drop"}}`)
		c.set(felixV1Path, func(k *servedKind) { k.status, k.retryAfter = 429, "1" })
	}, func(c *cluster) {
		c.after(10 * time.Minute)
		if got := c.got(); slices.Contains(got, "in sync") {
			t.Errorf("in sync without the configuration: %q", got)
		}
		c.set(felixV1Path, func(k *servedKind) { k.status = 0 })
		c.after(time.Minute)
		want := []string{"+configuration default map[defaultEndpointToHostAction:Drop]", "in sync"}
		if got := c.got(); !slices.Equal(got, want) {
			t.Errorf("after the overload %q, want %q", got, want)
		}
	})
}

var _ syncer.Source = (*Source)(nil)
