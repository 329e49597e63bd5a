package datastore

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/syncer/etcd"
	"github.com/margay-project/margay/pkg/validate"
)

// consumer is what an agent has of a source.
type consumer struct {
	t       testing.TB
	reports *syncer.Reports
	stalls  *testutil.Stalls

	mu      sync.Mutex
	objects map[string]string // log levels by the node they are for
	inSync  bool
	log     bytes.Buffer
}

// Write implements io.Writer, for the log.
func (c *consumer) Write(text []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Write(text)
}

// consume runs a source for as long as the test lasts.
func consume(t testing.TB, o etcd.Options) *consumer {
	t.Helper()
	c := &consumer{t: t, reports: syncer.NewReports(), stalls: testutil.WatchStalls(t), objects: map[string]string{}}
	if o.DialTimeout == 0 {
		o.DialTimeout = 10 * time.Second
	}
	o.KeepAlive = 5 * time.Second
	source := etcd.New(o, kinds.All(validate.Pods{}), slog.New(slog.NewTextHandler(c, nil)))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx, c.sink) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *consumer) sink(b syncer.Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reports.Note(b)
	for _, u := range b.Updates {
		switch u := u.(type) {
		case model.InSync:
			c.inSync = true
		case model.ConfigurationUpdate:
			name := strings.TrimPrefix(u.Name, "node.")
			if u.Configuration == nil {
				delete(c.objects, name)
			} else {
				c.objects[name] = u.Configuration.Values["logSeverityScreen"]
			}
		}
	}
}

func (c *consumer) has(want string) bool {
	wanted := map[string]string{}
	for _, pair := range strings.Fields(want) {
		name, level, _ := strings.Cut(pair, "=")
		wanted[name] = level
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inSync && maps.Equal(wanted, c.objects)
}

// awaits waits until the objects are these, "a=Info b=Debug", and returns how long that took, without stalls of the machine.
func (c *consumer) awaits(want string) time.Duration {
	c.t.Helper()
	began := time.Now()
	deadline := began.Add(30 * time.Second)
	for !c.has(want) {
		if time.Now().After(deadline) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.t.Fatalf("not within 30 s: %s; %v, in sync %t, %+v\n%s", want, c.objects, c.inSync, c.row(), c.log.String())
		}
		time.Sleep(time.Millisecond)
	}
	return c.stalls.Since(began)
}

// soon is awaits for what must come within a second.
func (c *consumer) soon(want string) {
	c.t.Helper()
	if took := c.awaits(want); took > time.Second {
		c.t.Errorf("%s: after %v, want at most a second\n%s", want, took, c.log.String())
	} else {
		c.t.Logf("up to date %v after etcd's return", took.Round(time.Millisecond))
	}
}

// stays demands that the objects do not change.
func (c *consumer) stays(want string) {
	c.t.Helper()
	for range 100 {
		if !c.has(want) {
			c.t.Fatalf("not %s any more: %v", want, c.objects)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// row is how it stands with the datastore.
func (c *consumer) row() syncer.KindStatus {
	for _, k := range c.reports.Kinds() {
		if k.Kind == "etcd" {
			return k
		}
	}
	return syncer.KindStatus{}
}

// fails waits until the datastore is in trouble, and the reason has the text.
func (c *consumer) fails(text string) {
	c.t.Helper()
	until(c.t, "fails with "+text, func() bool {
		row := c.row()
		return row.State != syncer.KindSynced && strings.Contains(row.Error, text)
	})
	if e := c.row().Error; strings.Contains(e, "\n") || strings.Contains(e, "rpc error") {
		c.t.Errorf("not one plain line: %q", e)
	}
}
