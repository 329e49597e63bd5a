package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/margay-project/margay/internal/testutil"
)

// What the agents' logs say of the way to the API server.
const (
	saidAway = "the API server cannot be reached"
	saidBack = "the API server is reached again"
)

func (a *agent) logFile() string { return filepath.Join(a.c.dir, "margay-"+a.node.Name()+".log") }

// said is how often each agent has said either.
func (c *cluster) said() (all [][2]int) {
	c.t.Helper()
	for _, n := range c.nodes {
		text, err := os.ReadFile(n.agent.logFile())
		c.must(err)
		all = append(all, [2]int{bytes.Count(text, []byte(saidAway)), bytes.Count(text, []byte(saidBack))})
	}
	return all
}

// awaitSaid waits until each agent has said either that much more often than before, and demands that none has said it
// once too often.
func (c *cluster) awaitSaid(limit time.Duration, before [][2]int, away, back int) {
	c.t.Helper()
	var want [][2]int
	for _, b := range before {
		want = append(want, [2]int{b[0] + away, b[1] + back})
	}
	what := fmt.Sprintf("the agents to say %d times that the API server is away, and %d times that it is back", away, back)
	testutil.WaitFor(c.t, limit, what, func() bool {
		now := c.said()
		for i := range now {
			if now[i][0] > want[i][0] || now[i][1] > want[i][1] {
				c.t.Fatalf("%s has said %v times that the API server is away and is back, want %v", c.nodes[i].Name(), now[i], want[i])
			}
		}
		return slices.Equal(now, want)
	})
}

// quiet demands that the agent's log says nothing bad but that the API server is away.
func (a *agent) quiet() {
	a.c.t.Helper()
	f, err := os.Open(a.logFile())
	a.c.must(err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l struct{ Level, Msg string }
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			a.c.t.Errorf("log of %s: %v: %s", a.node.Name(), err, lines.Text())
		}
		if (l.Level == "WARN" || l.Level == "ERROR") && !strings.HasPrefix(l.Msg, saidAway) {
			a.c.t.Errorf("%s: %s", a.node.Name(), lines.Text())
		}
	}
	a.c.must(lines.Err())
}

const healthPort, metricsPort = 9096, 9097

// get asks the agent by HTTP on the node's loopback interface. Status 0: no answer.
func (a *agent) get(port int, path string) (status int, body string) {
	a.c.t.Helper()
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = a.node.Do(func() error { conn, err = (&net.Dialer{}).DialContext(ctx, network, address); return err })
			if err != nil {
				return nil, err
			}
			return conn, nil
		},
	}}
	answer, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	a.c.must(err)
	return answer.StatusCode, string(text)
}

// awaitDegraded waits until each agent says that its API server is not there; all the while it is live and ready.
func (c *cluster) awaitDegraded() {
	c.t.Helper()
	c.awaitDatastore("to be degraded", func(detail string) bool { return strings.Contains(detail, "API server") })
}

// awaitHealthy waits until each agent has nothing to say of its datastore but which kinds the cluster does not serve; all
// the while it is live and ready.
func (c *cluster) awaitHealthy() {
	c.t.Helper()
	c.awaitDatastore("to be well", func(detail string) bool {
		for part := range strings.SplitSeq(detail, "; ") {
			if part != "" && !strings.HasSuffix(part, ": absent") {
				return false
			}
		}
		return true
	})
}

func (c *cluster) awaitDatastore(what string, as func(detail string) bool) {
	c.t.Helper()
	for _, n := range c.nodes {
		testutil.WaitFor(c.t, soon, "the datastore of the agent on "+n.Name()+" "+what, func() bool {
			if code, body := n.agent.get(healthPort, "/livez"); code != http.StatusOK {
				c.t.Fatalf("the agent on %s is not live: %d\n%s", n.Name(), code, body)
			}
			code, body := n.agent.get(healthPort, "/readyz")
			if code != http.StatusOK {
				c.t.Fatalf("the agent on %s is not ready: %d\n%s", n.Name(), code, body)
			}
			for row := range strings.Lines(body) {
				if fields := strings.Fields(row); len(fields) >= 4 && fields[0] == "datastore" {
					return as(strings.Join(fields[4:], " "))
				}
			}
			c.t.Fatalf("no datastore in\n%s", body)
			return false
		})
	}
}

// lists is how often each agent has listed NetworkPolicies.
func (c *cluster) lists() (all []float64) {
	c.t.Helper()
	for _, n := range c.nodes {
		_, body := n.agent.get(metricsPort, "/metrics")
		_, rest, found := strings.Cut(body, `margay_kind_lists_total{kind="NetworkPolicy"} `)
		value, _, _ := strings.Cut(rest, "\n")
		count, err := strconv.ParseFloat(value, 64)
		if !found || err != nil {
			c.t.Fatalf("the agent on %s does not say how often it has listed:\n%s", n.Name(), body)
		}
		all = append(all, count)
	}
	return all
}

// sameAsServer demands that the agents know as many objects as there are.
func (c *cluster) sameAsServer() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), soon)
	defer cancel()
	pods, err := c.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	c.must(err)
	namespaces, err := c.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	c.must(err)
	policies, err := c.client.NetworkingV1().NetworkPolicies("").List(ctx, metav1.ListOptions{})
	c.must(err)
	want := map[string]int{"Pod": len(pods.Items), "Namespace": len(namespaces.Items), "NetworkPolicy": len(policies.Items)}
	for _, n := range c.nodes {
		answer, err := n.agent.ask("status")
		c.must(err)
		for _, k := range answer.Status.Kinds {
			if count, ok := want[k.Kind]; ok && count != k.Objects {
				c.t.Errorf("%s knows %d objects of kind %s, there are %d", n.Name(), k.Objects, k.Kind, count)
			}
		}
	}
}
