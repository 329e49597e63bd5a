// Package labtest is the scene of tests of pkg/lab and of what sends and answers between its hosts. Its functions end the test if the
// scene cannot be made.
package labtest

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
	"github.com/margay-project/margay/pkg/lab/ns"
)

const (
	Soon  = 20 * time.Second       // for what must come
	First = 900 * time.Millisecond // for what must come without being sent again
	Never = 150 * time.Millisecond // for what must not
)

// Must returns a function that returns its first argument, or ends the test if there is an error.
func Must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// New makes a lab that is closed, and found to have left nothing, when the test ends.
func New(t *testing.T) *lab.Lab {
	t.Helper()
	testutil.Privileged(t)
	l := Must[*lab.Lab](t)(lab.New())
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		for _, name := range Must[[]string](t)(ns.List()) {
			if strings.HasPrefix(name, "mgy-"+l.ID()+"-") {
				t.Errorf("%s is left", name)
			}
		}
	})
	return l
}

// Node adds a node.
func Node(t *testing.T, l *lab.Lab, name string) *lab.Node {
	t.Helper()
	return Must[*lab.Node](t)(l.AddNode(name))
}

// Pod adds a pod of the namespace shop. Without addresses it gets those that its node chooses.
func Pod(t *testing.T, n *lab.Node, name string, addrs ...netip.Addr) *lab.Pod {
	t.Helper()
	return Must[*lab.Pod](t)(n.AddPod("shop", name, addrs...))
}

// ListenTCP starts a server of TCP.
func ListenTCP(t *testing.T, h *lab.Host, port uint16) *echo.Server {
	t.Helper()
	return Must[*echo.Server](t)(echo.ListenTCP(h, port))
}

// ListenUDP starts a server of UDP.
func ListenUDP(t *testing.T, h *lab.Host, port uint16) *echo.Server {
	t.Helper()
	return Must[*echo.Server](t)(echo.ListenUDP(h, port))
}

// DropTo makes the node drop what it forwards to a port of TCP, and allow again.
func DropTo(t *testing.T, n *lab.Node, port uint16) (allow func()) {
	t.Helper()
	testutil.RequireCommand(t, "iptables")
	rule := []string{"FORWARD", "-p", "tcp", "--dport", strconv.Itoa(int(port)), "-j", "DROP"}
	Must[string](t)(n.Run(t.Context(), "", "iptables", append([]string{"-A"}, rule...)...))
	return func() {
		t.Helper()
		Must[string](t)(n.Run(t.Context(), "", "iptables", append([]string{"-D"}, rule...)...))
	}
}

// WantOutcome fails the test unless an attempt has ended so.
func WantOutcome(t *testing.T, what string, got echo.Attempt, want echo.Outcome) {
	t.Helper()
	if got.Outcome != want {
		t.Errorf("%s: %v (%v), want %v", what, got.Outcome, got.Err, want)
	}
}
