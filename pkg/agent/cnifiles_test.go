package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
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
		files = endpointstatus.New(dir, o.Health.Add("cni-files", 0), o.Log)
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

// TestFilesOfPodsThatAreMadeAgainGoBeforeTheFirstSnapshot: an agent waits for the datastore, and a pod is made again under its name. The
// plugin must not find the file of before, since the new interface is closed.
func TestFilesOfPodsThatAreMadeAgainGoBeforeTheFirstSnapshot(t *testing.T) {
	dir := t.TempDir()
	file := func(i int) string { return filepath.Join(dir, endpointstatus.FileName(podID(i))) }
	var files *endpointstatus.Writer
	prepare := func(o *Options) {
		for i := range 3 {
			if err := os.WriteFile(file(i), []byte(`{"ifaceName":"`+pod(i).Endpoint.Iface+`"}`), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		files = endpointstatus.New(dir, o.Health.Add("cni-files", 0), o.Log)
		o.Statuses = files
		o.Dataplane.(*dataplane.Fake).Set(dataplane.FakeSettings{Ready: map[string]bool{pod(0).Endpoint.Iface: true, pod(1).Endpoint.Iface: true}})
	}
	runPrepared(t, itself, prepare, func(t *testing.T, r *rig) {
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error)
		go func() { stopped <- files.Run(ctx) }()
		want := func(when string, wanted ...bool) {
			t.Helper()
			synctest.Wait()
			for i, want := range wanted {
				if _, err := os.Stat(file(i)); (err == nil) != want {
					t.Errorf("%s: the file of pod %d is there: %v", when, i, !want)
				}
			}
		}
		want("at the start, with one interface that is not ready", true, true, false)
		r.dp.Set(dataplane.FakeSettings{Ready: map[string]bool{pod(0).Endpoint.Iface: true}})
		r.dp.Awake()
		want("one interface is another", true, false, false)
		r.put(pod(0), pod(1))
		want("before the first snapshot", true, false, false)
		r.put(model.InSync{})
		want("enforced", true, true, false)
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}
