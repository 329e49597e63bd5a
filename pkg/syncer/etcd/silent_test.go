package etcd

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/margay-project/margay/pkg/syncer"
)

// A proxy may keep a connection alive and have lost the watch.
func TestASilentWatchIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		f.write(readiness(true))
		f.write(felix("default", "Info"))
		w := follow(t, f)
		w.awaits("default=Info")
		f.set(false, func() { f.mute = true })
		f.write(felix("default", "Debug"))
		time.Sleep(maxSilence - time.Minute)
		w.stays("default=Info")
		if n := f.connections(); n != 1 {
			t.Errorf("%d connections before the watch is silent for too long", n)
		}
		time.Sleep(2 * time.Minute)
		w.awaits("default=Debug")
		if row := w.row(); row.State != syncer.KindSynced || row.Failures != 1 || f.connections() != 2 {
			t.Errorf("%+v, %d connections", row, f.connections())
		}
	})
}

func TestAWatchThatReportsItsProgressIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		f.write(readiness(true))
		f.write(felix("default", "Info"))
		w := follow(t, f)
		w.awaits("default=Info")
		for range 20 {
			time.Sleep(10 * time.Minute)
			f.set(false, func() { f.progress++ })
		}
		synctest.Wait()
		if row := w.row(); row.Failures != 0 || f.connections() != 1 {
			t.Errorf("%+v, %d connections", row, f.connections())
		}
		f.write(felix("default", "Debug"))
		w.awaits("default=Debug")
	})
}
