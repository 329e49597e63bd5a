package cli

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// scripted is a source that delivers batches, each after a time, and then nothing more.
type scripted []func() (after time.Duration, b syncer.Batch)

func (s scripted) Run(ctx context.Context, sink func(syncer.Batch)) error {
	for _, step := range s {
		after, b := step()
		select {
		case <-time.After(after):
			sink(b)
		case <-ctx.Done():
			return nil
		}
	}
	<-ctx.Done()
	return nil
}

func nodeAt(name, address string) model.Update {
	return model.NodeUpdate{Name: name, Node: &model.Node{Addrs: []netip.Addr{netip.MustParseAddr(address)}}}
}

// What counts is the newest version of each object when all are known, with problems that come a moment later.
func TestDatastoreIsReadUntilItIsInSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := scripted{
			func() (time.Duration, syncer.Batch) {
				return 0, syncer.Batch{Updates: []model.Update{nodeAt("n1", "10.0.0.1"), nodeAt("n2", "10.0.0.2")}}
			},
			func() (time.Duration, syncer.Batch) {
				return time.Minute, syncer.Batch{Updates: []model.Update{nodeAt("n1", "10.0.0.9"), model.InSync{}}}
			},
			func() (time.Duration, syncer.Batch) {
				return problemsWithin / 2, syncer.Batch{Problems: []syncer.Findings{{Subject: "x", Problems: []validate.Problem{{Reason: "odd"}}}}}
			},
		}
		m, _, err := readDatastore(t.Context(), source)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.updates) != 2 || m.updates[0].(model.NodeUpdate).Node.Addrs[0] != netip.MustParseAddr("10.0.0.9") || len(m.problems) != 1 {
			t.Errorf("%+v", m)
		}
	})
}

// A datastore that fails from the beginning is an error soon; one that is slow is not.
func TestDatastoreThatFailsIsAnError(t *testing.T) {
	kind := func(why string) syncer.Batch {
		return syncer.Batch{Kinds: []syncer.KindStatus{{Kind: "etcd", State: syncer.KindListing, Required: true, Error: why}}}
	}
	for why, want := range map[string]time.Duration{"etcd cannot be reached": failsAfter, "": unlistedAfter} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			_, _, err := readDatastore(t.Context(), scripted{func() (time.Duration, syncer.Batch) { return 0, kind(why) }})
			if err == nil || !strings.Contains(err.Error(), why) || time.Since(began) != want {
				t.Errorf("after %v: %v, want %q after %v", time.Since(began), err, why, want)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := readDatastore(ctx, scripted{}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestCheckWantsOneThingToCheck(t *testing.T) {
	for _, args := range [][]string{
		{"check", "--datastore", "etcd", "--dir", "x"},
		{"check", "--datastore", "etcd", "shop.yaml"},
		{"check", "--datastore", "etcd"},
		{"check", "--datastore", "directory"},
	} {
		cmd := root()
		var out bytes.Buffer
		cmd.SetArgs(args)
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		if err := cmd.ExecuteContext(t.Context()); err == nil || errors.As(err, new(exitCode)) {
			t.Errorf("%q: %v, %s", args, err, &out)
		} else {
			t.Log(err)
		}
	}
}
