package syncer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/margay-project/margay/pkg/model"
)

func TestMemoryDeliversSnapshotInSyncAndChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		m := NewMemory()
		m.Put(tier("a", 1), tier("b", 1), noTier("b"))

		var got []model.Update
		done := make(chan error)
		go func() { done <- m.Run(ctx, func(b Batch) { got = append(got, b.Updates...) }) }()

		expect := func(what string, want ...model.Update) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
			got = nil
		}
		expect("snapshot", tier("a", 1))
		m.Sync()
		expect("in-sync", model.InSync{})
		m.Put(noTier("a"), tier("c", 1))
		expect("change", noTier("a"), tier("c", 1))
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v after its context ended", err)
		}
	})
}

func TestMemoryFailsAfterDelivery(t *testing.T) {
	m := NewMemory()
	m.Put(tier("a", 1))
	cause := errors.New("disk on fire")
	m.Fail(cause)
	m.Fail(errors.New("another"))
	var got []model.Update
	if err := m.Run(t.Context(), func(b Batch) { got = append(got, b.Updates...) }); !errors.Is(err, cause) {
		t.Errorf("Run = %v, want %v", err, cause)
	}
	if diff := cmp.Diff([]model.Update{tier("a", 1)}, got); diff != "" {
		t.Errorf("delivered (-want +got):\n%s", diff)
	}
}

var _ Source = (*Memory)(nil)
