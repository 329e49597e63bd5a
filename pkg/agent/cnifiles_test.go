package agent

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/endpointstatus"
	"github.com/margay-project/margay/pkg/model"
)

func TestTheCNIPluginIsToldOfWhatIsEnforcedAndNotUntoldWhileItIs(t *testing.T) {
	dir := t.TempDir()
	var files *endpointstatus.Writer
	prepare := func(o *Options) {
		files = endpointstatus.New(dir, o.Log)
		o.Statuses = files
	}
	runPrepared(t, itself, prepare, func(t *testing.T, r *rig) {
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error)
		go func() { stopped <- files.Run(ctx) }()
		want := func(when string, pods ...int) {
			t.Helper()
			synctest.Wait()
			var names, there []string
			for _, i := range pods {
				names = append(names, endpointstatus.FileName(podID(i)))
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				there = append(there, e.Name())
			}
			if !slices.Equal(names, there) {
				t.Errorf("%s: files %q, want %q", when, there, names)
			}
		}
		r.put(pod(1))
		want("before the first snapshot")
		r.put(model.InSync{})
		want("in sync", 1)
		r.dp.Set(dataplane.FakeSettings{Failures: -1, ApplyErr: errors.New("no memory")})
		r.put(pod(2))
		want("while nothing can be written", 1)
		r.dp.Set(dataplane.FakeSettings{})
		time.Sleep(time.Minute)
		want("afterwards", 1, 2)
		r.put(model.EndpointUpdate{ID: podID(1)})
		want("without the first pod", 2)
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}
