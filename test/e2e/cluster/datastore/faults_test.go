package datastore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/margay-project/margay/pkg/syncer/etcd"
)

// scene is a server that is ready, with the objects a and b, and a source that reads it by a proxy.
type scene struct {
	*server
	store
	proxy *proxy
	*consumer
}

func newScene(t *testing.T, flags ...string) scene {
	t.Helper()
	s := newServer(t, flags...)
	s.start()
	p := newProxy(t, s.address)
	st := store{t, s.client(nil, "")}
	st.ready(true)
	st.put("a", "Info")
	st.put("b", "Info")
	c := consume(t, etcd.Options{Endpoints: []string{"http://" + p.address()}})
	c.awaits("a=Info b=Info")
	return scene{s, st, p, c}
}

func TestKilledAndRestarted(t *testing.T) {
	s := newScene(t)
	for round := range 3 {
		s.put("a", fmt.Sprint("x", round))
		s.awaits(fmt.Sprintf("a=x%d b=Info", round))
		s.kill()
		s.fails("cannot be reached")
		s.stays(fmt.Sprintf("a=x%d b=Info", round))
		s.start()
		s.put("c", "Debug")
		s.soon(fmt.Sprintf("a=x%d b=Info c=Debug", round))
		s.remove("c")
		s.awaits(fmt.Sprintf("a=x%d b=Info", round))
	}
	if lists := s.row().Lists; lists > 2 { // a machine that is busy may take one server's silence for another history
		t.Errorf("%d lists; it should have gone on where it was", lists)
	}
}

func TestCompactedMeanwhile(t *testing.T) {
	s := newScene(t)
	s.proxy.cut()
	s.fails("cannot be reached")
	s.put("a", "Debug")
	s.remove("b")
	s.put("c", "Info")
	s.compact()
	s.stays("a=Info b=Info")
	s.proxy.open()
	s.soon("a=Debug c=Info")
	s.put("c", "Error")
	s.awaits("a=Debug c=Error")
}

// backups are ways to bring an etcd back to what it was: a copy of its data, which makes the same cluster with revisions that
// are used again; a snapshot, which makes another cluster; and one whose revisions go on far behind the last.
var backups = map[string]func(*server) (restore func()){
	"data directory": func(s *server) func() {
		s.kill()
		restore := s.save()
		s.start()
		return restore
	},
	"snapshot":               func(s *server) func() { return s.snapshot(0) },
	"snapshot, revisions on": func(s *server) func() { return s.snapshot(1_000_000) },
}

func TestRestoredToAnOlderRevision(t *testing.T) {
	for way, backup := range backups {
		for name, more := range map[string]int{"and still behind": 0, "and further since": 20} {
			t.Run(way+" "+name, func(t *testing.T) { restoredToAnOlderRevision(t, backup, more) })
		}
	}
}

func restoredToAnOlderRevision(t *testing.T, backup func(*server) func(), more int) {
	s := newScene(t)
	restore := backup(s.server)
	for i := range 10 {
		s.put("a", fmt.Sprint("x", i))
	}
	s.remove("b")
	s.put("c", "Info")
	s.awaits("a=x9 c=Info")
	s.proxy.cut()
	s.kill()
	restore()
	s.start()
	want := "a=Info b=Info"
	for i := range more {
		s.put("d", fmt.Sprint("y", i))
		want = fmt.Sprintf("a=Info b=Info d=y%d", i)
	}
	s.stays("a=x9 c=Info")
	s.proxy.open()
	s.soon(want)
	s.put("e", "Info")
	s.awaits(want + " e=Info")
}

// Wiped, and filled again: nothing is believed in between.
func TestWiped(t *testing.T) {
	s := newScene(t)
	if _, err := s.c.Delete(t.Context(), "/calico", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	s.fails("there is no ClusterInformation")
	s.put("a", "Debug")
	s.stays("a=Info b=Info")
	s.ready(true)
	s.soon("a=Debug")
}

func TestSlow(t *testing.T) {
	s := newScene(t)
	s.proxy.slow(400 * time.Millisecond)
	s.put("a", "Debug")
	s.awaits("a=Debug b=Info")
	s.proxy.cut()
	s.put("b", "Debug")
	s.compact()
	s.proxy.open()
	took := s.awaits("a=Debug b=Debug")
	t.Logf("a new connection and a list took %v, with 0.8 s for each answer", took)
	s.put("c", "Info")
	s.awaits("a=Debug b=Debug c=Info")
}

// Full: nobody can write, and reading goes on, by new connections too.
func TestFull(t *testing.T) {
	s := newScene(t, "--quota-backend-bytes=4194304")
	large := strings.Repeat("x", 1<<20)
	for i := 0; ; i++ {
		if _, err := s.c.Put(t.Context(), fmt.Sprint("/fill/", i), large); err != nil {
			if !strings.Contains(err.Error(), "database space exceeded") {
				t.Fatal(err)
			}
			break // it is full
		}
	}
	if err := s.try("a", "Debug"); err == nil {
		t.Fatal("etcd is not full")
	}
	s.proxy.cut()
	s.fails("cannot be reached")
	s.proxy.open()
	s.stays("a=Info b=Info")
	until(t, "followed again", func() bool { return s.row().Error == "" })
	consume(t, etcd.Options{Endpoints: []string{"http://" + s.proxy.address()}}).awaits("a=Info b=Info")

	s.kill() // an administrator gives it more room
	s.flags = nil
	s.start()
	if _, err := s.c.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	s.put("a", "Debug")
	s.awaits("a=Debug b=Info")
}

// Two of three servers are gone: no leader, so no answers, and what is known stays. With two of them it goes on.
func TestLostLeader(t *testing.T) {
	members, list, endpoints := []*server{}, "", []string{}
	for i := range 3 {
		s := newServer(t)
		s.name = fmt.Sprint("m", i)
		members, list = append(members, s), list+","+s.name+"="+s.peer
		endpoints = append(endpoints, "http://"+s.address)
	}
	for _, s := range members {
		s.members = list[1:]
		s.launch()
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	st := store{t, c}
	until(t, "a leader", func() bool { return st.try("a", "Info") == nil })
	st.ready(true)
	w := consume(t, etcd.Options{Endpoints: endpoints})
	w.awaits("a=Info")
	members[0].kill()
	until(t, "written by two", func() bool { return st.try("a", "Debug") == nil })
	w.awaits("a=Debug")
	members[1].kill()
	until(t, "no leader", func() bool { return w.row().Error != "" })
	t.Logf("two of three are gone: %s", w.row().Error)
	w.stays("a=Debug")
	members[1].launch()
	until(t, "written by two again", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		key, value := felix("b", "Info")
		_, err := c.Put(ctx, key, value)
		return err == nil
	})
	w.awaits("a=Debug b=Info")
}
