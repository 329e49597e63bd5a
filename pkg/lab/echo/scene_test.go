package echo_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

const (
	soon  = 20 * time.Second       // for what must come
	never = 150 * time.Millisecond // for what must not
)

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// newLab makes a lab that is closed when the test ends.
func newLab(t *testing.T) *lab.Lab {
	t.Helper()
	testutil.Privileged(t)
	l := must[*lab.Lab](t)(lab.New())
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func addNode(t *testing.T, l *lab.Lab, name string) *lab.Node {
	t.Helper()
	return must[*lab.Node](t)(l.AddNode(name))
}

func addPod(t *testing.T, n *lab.Node, name string) *lab.Pod {
	t.Helper()
	return must[*lab.Pod](t)(n.AddPod("shop", name))
}

func listenTCP(t *testing.T, h *lab.Host, port uint16) *echo.Server {
	t.Helper()
	return must[*echo.Server](t)(echo.ListenTCP(h, port))
}

// dropTo makes the node drop what it forwards to a port, and allow again.
func dropTo(t *testing.T, n *lab.Node, port uint16) (allow func()) {
	t.Helper()
	testutil.RequireCommand(t, "iptables")
	rule := []string{"FORWARD", "-p", "tcp", "--dport", strconv.Itoa(int(port)), "-j", "DROP"}
	must[string](t)(n.Run(t.Context(), "", "iptables", append([]string{"-A"}, rule...)...))
	return func() {
		t.Helper()
		must[string](t)(n.Run(t.Context(), "", "iptables", append([]string{"-D"}, rule...)...))
	}
}

func wantOutcome(t *testing.T, what string, got echo.Attempt, want echo.Outcome) {
	t.Helper()
	if got.Outcome != want {
		t.Errorf("%s: %v (%v), want %v", what, got.Outcome, got.Err, want)
	}
}
