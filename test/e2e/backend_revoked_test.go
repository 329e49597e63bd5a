package e2e

import (
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
)

// TestAConnectionThatIsDeniedEndsBesideTheOtherBackend: the chains of the former agent, of the other backend, stay as long as they cannot be
// removed (the lock of legacy tables is held), and still allow it. It is cut all the same, also without an agent.
func TestAConnectionThatIsDeniedEndsBesideTheOtherBackend(t *testing.T) {
	c := newCluster(t, oneNode, "--dataplane", "iptables", "--iptables-backend", "legacy")
	db, bad := c.Pod(c.Node(0), "db"), c.Pod(c.Node(0), "bad")
	client, server := connect(t, bad, db)
	later, laterServer := connect(t, bad, db)
	agent := c.Agent(0)
	flags := agent.Flags
	agent.Kill()
	c.Policy("db", onlyGood)
	removal := holdTablesLock(t)
	agent.Flags = slices.Concat(flags, []string{"--iptables-backend", "nft"})
	agent.Launch()
	testutil.WaitFor(t, soon, "packets to pass the chains of both backends", func() bool {
		saved, err := c.Node(0).Run(t.Context(), "", "iptables-nft-save", "-t", "mangle")
		return err == nil && strings.Contains(saved, "-A FORWARD -j mgy")
	})
	if carries(client, server) || carries(server, client) {
		t.Error("the connection goes on beside the former chains")
	}
	agent.Kill()
	if carries(later, laterServer) || carries(laterServer, later) {
		t.Error("another one goes on without an agent")
	}
	removal()
	agent.Start()
	testutil.WaitFor(t, soon, "the chains to reset TCP again", func() bool {
		saved, err := c.Node(0).Run(t.Context(), "", "iptables-nft-save", "-t", "mangle")
		return err == nil && strings.Contains(saved, "-p tcp -j ACCEPT")
	})
	if carries(later, laterServer) || carries(laterServer, later) {
		t.Error("it goes on in the end")
	}
}

// carries reports whether a byte gets from one end of a connection to the other within half a second.
func carries(from, to net.Conn) bool {
	_, err1 := from.Write([]byte("x"))
	err2 := to.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	n, err3 := to.Read(make([]byte, 16))
	return errors.Join(err1, err2, err3) == nil && n > 0
}

// holdTablesLock holds the lock of tables of the legacy backend until release is called.
func holdTablesLock(t *testing.T) (release func()) {
	t.Helper()
	lock, err := os.OpenFile(os.Getenv(testcluster.TablesLockEnv), os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := lock.Close(); err != nil {
			t.Error(err)
		}
	}
}
