//go:build linux

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/margay-project/margay/pkg/inspect"
)

// answers is an agent's socket that answers what it is given.
type answers struct {
	socket string
	mu     sync.Mutex
	by     map[string]inspect.Answer
}

func (a *answers) set(path string, answer inspect.Answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.by[path] = answer
}

func newAnswers(t *testing.T) *answers {
	t.Helper()
	a := &answers{socket: filepath.Join(t.TempDir(), "agent.sock"), by: map[string]inspect.Answer{}}
	l, err := net.Listen("unix", a.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if err := json.NewEncoder(w).Encode(a.by[r.URL.Path]); err != nil {
			t.Error(err)
		}
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	a.set("/v1/endpoints", inspect.Answer{Endpoints: []inspect.EndpointRow{
		{Namespace: "shop", Name: "web-1", Interface: "cali1", Ifindex: 9}, {Namespace: "shop", Name: "db-0", Interface: "cali2", Ifindex: 10},
		{Namespace: "dev", Name: "web-2", Interface: "cali3", Ifindex: 3}, {Interface: "cali4", Condition: inspect.ConditionClosed},
	}})
	a.set("/v1/rules", inspect.Answer{Rules: []inspect.RuleRow{{Direction: "ingress", Action: "Allow", ID: 7}, {Direction: "ingress", Action: "Deny"}}})
	return a
}

// run runs a command line that must succeed.
func (a *answers) run(t *testing.T, line string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if status := execute(t.Context(), append(strings.Fields(line), "--socket", a.socket), &stdout, &stderr); status != 0 {
		t.Fatalf("margay %s: exit status %d: %s", line, status, &stderr)
	}
	return stdout.String()
}

// firstColumn is the first word of each line.
func firstColumn(text string) string {
	var list []string
	for line := range strings.Lines(text) {
		list = append(list, strings.Fields(line)[0])
	}
	return strings.Join(list, " ")
}

func TestShowSelectsAndSorts(t *testing.T) {
	a := newAnswers(t)
	for line, want := range map[string]string{
		"show endpoints":                                  "ENDPOINT shop/web-1 shop/db-0 dev/web-2 -",
		"show ep -n shop":                                 "ENDPOINT shop/web-1 shop/db-0",
		"show pods --pod web":                             "ENDPOINT shop/web-1 dev/web-2",
		"show endpoint --pod web --namespace shop":        "ENDPOINT shop/web-1",
		"show ep --sort-by ifindex":                       "ENDPOINT - dev/web-2 shop/web-1 shop/db-0",
		"show ep --sort-by -endpoint -n shop":             "ENDPOINT shop/web-1 shop/db-0",
		"show rules shop/web-1 --verdict deny":            "DIRECTION ingress",
		"show rules shop/web-1 --verdict pass":            "none",
		"show ep --namespace nope":                        "none",
		"show ep --pod web -n dev -o wide":                "ENDPOINT dev/web-2",
		"show ep --pod web -n dev -o text --color=always": bold + "ENDPOINT" + plain + " dev/web-2",
	} {
		if got := firstColumn(a.run(t, line)); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
	if got := a.run(t, "show ep --namespace nope"); got != "none of 4 rows matches\n" {
		t.Errorf("nothing selected says %q", got)
	}
	if got := a.run(t, "show rules shop/web-1 -o wide"); !strings.Contains(got, "ID\n") || strings.Contains(a.run(t, "show rules shop/web-1"), "ID\n") {
		t.Errorf("-o wide has no more columns:\n%s", got)
	}
	var fromJSON, fromYAML []inspect.EndpointRow
	if err := json.Unmarshal([]byte(a.run(t, "show ep -n shop --sort-by endpoint -o json")), &fromJSON); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(a.run(t, "show ep -n shop --sort-by endpoint -o yaml")), &fromYAML); err != nil {
		t.Fatal(err)
	}
	if len(fromJSON) != 2 || fromJSON[0].Name != "db-0" || !cmp.Equal(fromJSON, fromYAML, cmp.Comparer(func(a, b inspect.EndpointRow) bool {
		return a.Name == b.Name && a.Ifindex == b.Ifindex
	})) {
		t.Errorf("JSON %+v, YAML %+v", fromJSON, fromYAML)
	}
}

// An agent's environment has no say in what is shown.
func TestSelectionIsNotFromTheEnvironment(t *testing.T) {
	a := newAnswers(t)
	t.Setenv("MARGAY_NAMESPACE", "nope")
	t.Setenv("MARGAY_POD", "nope")
	if got := firstColumn(a.run(t, "show ep")); got != "ENDPOINT shop/web-1 shop/db-0 dev/web-2 -" {
		t.Error(got)
	}
}

func TestWatchPrintsWhatHasChanged(t *testing.T) {
	a := newAnswers(t)
	pages := make(chan string)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := showOptions{instanceFlags: instanceFlags{socket: a.socket}, output: "text"}
	ended := make(chan error)
	cmd := showList(&o, &cobra.Command{}, listing[inspect.EndpointRow]{
		read: fromAgent(o.ask, "/v1/endpoints", func(a *inspect.Answer) []inspect.EndpointRow { return a.Endpoints }), table: endpointTable,
	})
	o.watch = true
	cmd.SetContext(ctx)
	cmd.SetOut(pageWriter(pages))
	go func() { ended <- cmd.RunE(cmd, nil) }()
	if first := <-pages; !strings.Contains(first, "shop/web-1") {
		t.Errorf("first page:\n%s", first)
	}
	a.set("/v1/endpoints", inspect.Answer{})
	select {
	case second := <-pages:
		if second != "no endpoints on this node\n" {
			t.Errorf("second page:\n%s", second)
		}
	case <-time.After(answered):
		t.Fatal("nothing more is printed")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// pageWriter hands on each page as it is written.
type pageWriter chan string

func (w pageWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

func TestCompletion(t *testing.T) {
	a := newAnswers(t)
	t.Setenv("MARGAY_SOCKET", a.socket)
	for line, want := range map[string]string{
		"show rules ":             "dev/web-2 shop/db-0 shop/web-1 :4",
		"show rules sh":           "shop/db-0 shop/web-1 :4",
		"show rules shop/web-1 ":  ":4",
		"explain ":                "dev/web-2 shop/db-0 shop/web-1 :4",
		"explain shop/web-1 shop": "shop/db-0 shop/web-1 :6",
		"show ep --namespace ":    "dev shop :4",
		"show ep --pod we":        "web-1 web-2 :4",
		"show ep -o ":             "text wide json yaml :4",
		"show ep --color ":        "auto always never :4",
		"show drops --sort-by p":  "packets :4",
		"run --log-level ":        "debug info warn error :4",
		"run --mid-flow ":         "judge strict :4",
	} {
		args, last := strings.Fields(line), ""
		if !strings.HasSuffix(line, " ") {
			last, args = args[len(args)-1], args[:len(args)-1]
		}
		var stdout, stderr bytes.Buffer
		execute(t.Context(), append(append([]string{"__complete"}, args...), last), &stdout, &stderr)
		if got := strings.Join(strings.Fields(stdout.String()), " "); got != want {
			t.Errorf("%q is completed by %s, want %s", line, got, want)
		}
	}
	var help bytes.Buffer
	if execute(t.Context(), []string{"--help"}, &help, &help); !strings.Contains(help.String(), "completion ") {
		t.Errorf("completion is hidden:\n%s", &help)
	}
}

// A group that is not in groupOrder would hide its flags.
func TestHelpHasEveryFlag(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		path := strings.Fields(c.CommandPath())[1:]
		var help bytes.Buffer
		execute(t.Context(), append(path, "--help"), &help, &help)
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(help.String(), "--"+f.Name) {
				t.Errorf("margay %s --help has no --%s", strings.Join(path, " "), f.Name)
			}
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root())
	var help bytes.Buffer
	execute(t.Context(), []string{"run", "--help"}, &help, &help)
	for _, group := range []string{groupSource, groupEnforcement, groupLimits, groupReporting, groupAgent} {
		if !strings.Contains(help.String(), "\n"+group+":\n") {
			t.Errorf("no group %s in\n%s", group, &help)
		}
	}
}
