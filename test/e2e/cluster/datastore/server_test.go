// Package datastore proves the source that reads etcd on real servers: killed, cut off, compacted, restored, slow, full,
// with users and with certificates.
package datastore

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/margay-project/margay/internal/testutil"
)

// binary returns etcd as scripts/e2e-binaries builds it.
func binary(t testing.TB) string {
	t.Helper()
	dir := testutil.Getenv("MARGAY_CLUSTER_BIN")
	if dir == "" {
		out, _ := exec.Command("../../../../scripts/e2e-binaries", "--find").Output()
		dir = strings.TrimSpace(string(out))
	}
	path := filepath.Join(dir, "etcd")
	if _, err := os.Stat(path); err != nil {
		testutil.Missing(t, "needs etcd; build it with make e2e-binaries")
	}
	return path
}

// server is a member of an etcd cluster on the loopback interface. It ends with its test.
type server struct {
	t       testing.TB
	name    string
	scheme  string
	address string // of clients
	peer    string // URL
	members string // of the cluster
	flags   []string
	dir     string
	cmd     *exec.Cmd
	done    chan struct{}
}

// newServer prepares the only member of a cluster.
func newServer(t testing.TB, flags ...string) *server {
	t.Helper()
	s := &server{t: t, name: "only", scheme: "http", address: freeAddress(t), peer: "http://" + freeAddress(t), flags: flags,
		dir: filepath.Join(t.TempDir(), "data")}
	s.members = s.name + "=" + s.peer
	t.Cleanup(func() {
		s.kill()
		if log, err := os.ReadFile(s.dir + ".log"); err == nil && t.Failed() {
			t.Logf("%s at %s, %s:\n%s", s.name, s.address, s.peer, log)
		}
	})
	return s
}

// lastPort is the port that freeAddress has returned last.
var lastPort = 20000 + os.Getpid()%5000

// freeAddress returns an address that nothing listens at, another one each time. Its port is none from which connections are made: a server that
// dials another one before that listens could have the port of it, or connect to itself by it.
func freeAddress(t testing.TB) string {
	t.Helper()
	for ; lastPort < 32000; lastPort++ {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", lastPort+1))
		if err != nil {
			continue // somebody else's
		}
		l.Close()
		lastPort++
		return l.Addr().String()
	}
	t.Fatal("no port below 32,000 is free")
	return ""
}

// launch starts the server and does not wait.
func (s *server) launch() {
	s.t.Helper()
	url := s.scheme + "://" + s.address
	s.cmd = exec.Command(binary(s.t), append([]string{
		"--name=" + s.name, "--data-dir=" + s.dir, "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls=" + url, "--advertise-client-urls=" + url,
		"--listen-peer-urls=" + s.peer, "--initial-advertise-peer-urls=" + s.peer, "--initial-cluster=" + s.members,
		"--heartbeat-interval=50", "--election-timeout=250"}, s.flags...)...)
	log, err := os.OpenFile(s.dir+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, done, cmd := make(chan error), make(chan struct{}), s.cmd
	s.done = done
	go func() {
		runtime.LockOSThread() // the death signal comes when the thread ends
		started <- cmd.Start()
		_ = cmd.Wait()
		close(done)
	}()
	if err := <-started; err != nil {
		s.t.Fatal(err)
	}
}

// start starts the server and waits until it serves.
func (s *server) start() {
	s.t.Helper()
	s.launch()
	c := s.client(nil, "")
	until(s.t, "etcd serves", func() bool {
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
		defer cancel()
		_, err := c.Get(ctx, "x")
		return err == nil || strings.Contains(err.Error(), "user name is empty")
	})
}

// kill ends the server by SIGKILL; its data stay.
func (s *server) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // fails if it has ended
	<-s.done
	s.cmd = nil
}

// client is one of the test's own, past every proxy. It ends with the test.
func (s *server) client(secure *tls.Config, user string) *clientv3.Client {
	s.t.Helper()
	password := ""
	if user != "" {
		password = user + "-secret"
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.scheme + "://" + s.address}, TLS: secure, Username: user,
		Password: password, Logger: zap.NewNop(), DialTimeout: 10 * time.Second})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// save copies the data of a server that does not run, and back.
func (s *server) save() (restore func()) {
	s.t.Helper()
	saved := filepath.Join(s.t.TempDir(), "saved")
	if err := os.CopyFS(saved, os.DirFS(s.dir)); err != nil {
		s.t.Fatal(err)
	}
	return func() {
		if err := os.RemoveAll(s.dir); err != nil {
			s.t.Fatal(err)
		}
		if err := os.CopyFS(s.dir, os.DirFS(saved)); err != nil {
			s.t.Fatal(err)
		}
		if err := os.Chmod(s.dir, 0o700); err != nil {
			s.t.Fatal(err)
		}
	}
}

// snapshot has a server that runs write a snapshot, from which restore makes the data of a new cluster while it does not run.
func (s *server) snapshot(bumpRevision uint64) (restore func()) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "snapshot")
	r, err := s.client(nil, "").Snapshot(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	if err != nil {
		s.t.Fatal(err)
	}
	write(s.t, file, content)
	return func() {
		if err := os.RemoveAll(s.dir); err != nil {
			s.t.Fatal(err)
		}
		err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
			SnapshotPath: file, Name: s.name, OutputDataDir: s.dir, PeerURLs: []string{s.peer}, InitialCluster: s.members,
			InitialClusterToken: "restored", RevisionBump: bumpRevision, MarkCompacted: bumpRevision > 0,
		})
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// until waits for something to become true.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatal("not within 30 s: " + what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

const root = "/calico/resources/v3/projectcalico.org/"

// felix is the key and value of a FelixConfiguration.
func felix(name, level string) (key, value string) {
	return root + "felixconfigurations/node." + name, fmt.Sprintf(`{"apiVersion": "projectcalico.org/v3",
		"kind": "FelixConfiguration", "metadata": {"name": "node.%s"}, "spec": {"logSeverityScreen": %q}}`, name, level)
}

// store writes to a server.
type store struct {
	t testing.TB
	c *clientv3.Client
}

// try writes an object.
func (s store) try(name, level string) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	key, value := felix(name, level)
	_, err := s.c.Put(ctx, key, value)
	return err
}

func (s store) put(name, level string) {
	s.t.Helper()
	if err := s.try(name, level); err != nil {
		s.t.Fatal(err)
	}
}

func (s store) remove(name string) {
	s.t.Helper()
	key, _ := felix(name, "")
	if r, err := s.c.Delete(s.t.Context(), key); err != nil || r.Deleted != 1 {
		s.t.Fatal(err, r)
	}
}

func (s store) ready(ready bool) {
	s.t.Helper()
	value := fmt.Sprintf(`{"kind": "ClusterInformation", "spec": {"datastoreReady": %t}}`, ready)
	if _, err := s.c.Put(s.t.Context(), root+"clusterinformations/default", value); err != nil {
		s.t.Fatal(err)
	}
}

// compact makes the server forget its history.
func (s store) compact() {
	s.t.Helper()
	r, err := s.c.Get(s.t.Context(), "x")
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.c.Compact(s.t.Context(), r.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		s.t.Fatal(err)
	}
}
