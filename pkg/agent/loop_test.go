package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/health"
	"github.com/margay-project/margay/pkg/metrics"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
)

// rig is a loop between a datastore and a dataplane that exist in memory only.
type rig struct {
	*Loop
	store  *syncer.Memory
	dp     *dataplane.Fake
	log    sharedLog
	health *health.Aggregate
	config *config.Layers
	passes outcomes
	level  slog.LevelVar
	files  chan *config.File
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // what Run returned; after ended
}

// sharedLog is what a logger wrote. Safe for concurrent use: that nobody writes at the moment, as synctest.Wait has it, is
// no order between what was read before and what is written after.
type sharedLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *sharedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns what was written since the last Reset.
func (l *sharedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *sharedLog) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
}

// outcomes are those of the passes since they were asked for last, once they were asked for at all. Safe for concurrent use.
type outcomes struct {
	mu    sync.Mutex
	asked bool
	list  []Outcome
}

// Observe implements observer.
func (o *outcomes) Observe(out Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.asked {
		o.list = append(o.list, out)
	}
}

func (o *outcomes) take() []Outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.list
	o.asked, o.list = true, nil
	return list
}

// run calls do with a loop that runs, in a bubble where time is not the world's.
func run(t *testing.T, do func(*testing.T, *rig)) {
	t.Helper()
	runWith(t, itself, do)
}

// itself puts nothing between loop and dataplane.
func itself(dp *dataplane.Fake) dataplane.Dataplane { return dp }

// runWith is run with something between loop and dataplane.
func runWith(t *testing.T, between func(*dataplane.Fake) dataplane.Dataplane, do func(*testing.T, *rig)) {
	t.Helper()
	runPrepared(t, between, func(*Options) {}, do)
}

// runPrepared is runWith after prepare has changed what the loop is made of.
func runPrepared(t *testing.T, between func(*dataplane.Fake) dataplane.Dataplane, prepare func(*Options), do func(*testing.T, *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{store: syncer.NewMemory(), dp: dataplane.NewFake(), ended: make(chan struct{})}
		r.files = make(chan *config.File)
		o := complete(t, Options{Source: r.store, Graph: calc.New("n"), Dataplane: between(r.dp), Files: r.files, Level: &r.level,
			Log: slog.New(slog.NewTextHandler(&r.log, nil))})
		prepare(&o)
		r.Loop, r.health, r.config = New(o), o.Health, o.Settings
		r.observers = append(r.observers, &r.passes)
		var ctx context.Context
		ctx, r.cancel = context.WithCancel(t.Context())
		go func() {
			defer close(r.ended)
			r.err = r.Run(ctx)
		}()
		do(t, r)
		r.cancel()
		<-r.ended
	})
}

// complete adds what every loop needs and no test here looks at.
func complete(t *testing.T, o Options) Options {
	t.Helper()
	if o.Node == "" {
		o.Node = "n"
	}
	var errs [2]error
	if o.Settings == nil {
		o.Settings, _, errs[0] = config.New(config.Local{Host: o.Node})
	}
	if o.Metrics == nil {
		o.Metrics, errs[1] = metrics.New(metrics.Options{Read: func(context.Context) (metrics.Snapshot, error) {
			return metrics.Snapshot{}, nil
		}})
	}
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	if o.Health == nil {
		o.Health = health.New(time.Now)
	}
	return o
}

// put changes the datastore and waits until the loop has nothing to do but wait.
func (r *rig) put(updates ...model.Update) {
	r.store.Put(updates...)
	synctest.Wait()
}

// report has the datastore say how it stands with a kind, and waits until the loop has noted that: the state of a kind is noted
// after the updates that come with it, and a pass may come between.
func (r *rig) report(kind syncer.KindStatus) {
	r.store.Report(nil, []syncer.KindStatus{kind})
	synctest.Wait()
}

func pod(i int) model.EndpointUpdate {
	return model.EndpointUpdate{ID: podID(i), Endpoint: &model.Endpoint{Node: "n", Iface: fmt.Sprintf("cali%d", i),
		Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}}}
}

func podID(i int) model.EndpointID {
	return model.WorkloadID("t", fmt.Sprintf("p%d", i))
}

func (r *rig) wantEnforced(t *testing.T, n int) {
	t.Helper()
	if got := len(r.dp.State().Endpoints); got != n {
		t.Errorf("%d endpoints are enforced, want %d", got, n)
	}
}

func TestNothingIsAppliedBeforeTheFirstSnapshotIsComplete(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.put(pod(1), pod(2))
		r.dp.Awake()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if r.dp.State().Applies != 0 || r.Status().InSync {
			t.Errorf("%d applications before the snapshot was complete, in sync: %v", r.dp.State().Applies, r.Status().InSync)
		}
		r.store.Sync()
		synctest.Wait()
		r.wantEnforced(t, 2)
		if s := r.Status(); !s.InSync || !s.Ready || s.Error != "" {
			t.Errorf("status %+v, want in sync and ready", s)
		}
	})
}

func TestALargeSnapshotIsTakenInBatchesAndAppliedOnce(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		var all []model.Update
		for i := range 2*batchSize + 1 {
			all = append(all, pod(i))
		}
		r.store.Put(all...)
		r.store.Sync()
		synctest.Wait()
		r.wantEnforced(t, 2*batchSize+1)
		if r.dp.State().Applies != 1 {
			t.Errorf("%d applications, want 1", r.dp.State().Applies)
		}
	})
}

func TestChangesThatComeWhileOneIsAppliedAreAppliedTogether(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.store.Sync()
		r.dp.Set(dataplane.FakeSettings{Delay: time.Second})
		r.put(pod(0))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		before := r.dp.State().Applies
		for i := range 10 { // the first is taken at once, the others wait for it
			r.put(pod(i + 1))
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		r.wantEnforced(t, 11)
		if n := r.dp.State().Applies - before; n != 2 {
			t.Errorf("%d applications, want 2", n)
		}
	})
}

func TestRetriesBackOffAndSayEachProblemOnce(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.store.Sync()
		synctest.Wait()
		r.dp.Set(dataplane.FakeSettings{Failures: 9, ApplyErr: errors.Join(errors.New("no memory"), errors.New("no luck"))})
		began := time.Now()
		applies := r.dp.State().Applies
		r.put(pod(1))
		if s := r.Status(); s.Ready || !s.InSync || !strings.Contains(s.Error, "no luck") {
			t.Errorf("status %+v, want one that is not ready and says why", s)
		}
		// 0.1+0.2+0.4+0.8+1.6+3.2+6.4+10+10 s
		time.Sleep(32 * time.Second)
		synctest.Wait()
		r.wantEnforced(t, 0)
		if n := r.dp.State().Applies - applies; n != 9 {
			t.Errorf("%d attempts in %s, want 9", n, time.Since(began))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		r.wantEnforced(t, 1)
		if !r.Status().Ready {
			t.Error("not ready after the problem was over")
		}
		for _, line := range []string{`err="no memory"`, `err="no luck"`, "enforced again"} {
			if n := strings.Count(r.log.String(), line); n != 1 {
				t.Errorf("the log has %q %d times, want once:\n%s", line, n, &r.log)
			}
		}
		// The next failure starts from the beginning.
		r.dp.Set(dataplane.FakeSettings{Failures: 1, ApplyErr: errors.New("again")})
		r.put(pod(2))
		time.Sleep(firstRetry)
		synctest.Wait()
		r.wantEnforced(t, 2)
	})
}

func TestNewChangesNeitherWaitForARetryNorPutItOff(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.store.Sync()
		synctest.Wait()
		applies := r.dp.State().Applies
		r.dp.Set(dataplane.FakeSettings{Failures: 1000, ApplyErr: errors.New("refused")})
		for i := range 100 { // every 90 ms, for 9 s
			r.put(pod(i))
			time.Sleep(90 * time.Millisecond)
		}
		synctest.Wait()
		// Retries at 0.1, 0.3, 0.7, 1.5, 3.1 and 6.3 s, and an attempt for each change.
		if n := r.dp.State().Applies - applies; n < 105 || n > 107 {
			t.Errorf("%d attempts for 100 changes in 9 s, want about 106", n)
		}
	})
}

func TestTheDataplaneIsReopenedWhenChangesStayStuck(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.store.Sync()
		r.put(pod(1), pod(2))
		refused := errors.New("does not fit")
		r.dp.Set(dataplane.FakeSettings{Failures: -1, ApplyErr: refused})
		r.put(pod(3))
		r.put(model.EndpointUpdate{ID: podID(3)}, model.EndpointUpdate{ID: podID(1)}, pod(4))
		time.Sleep(time.Second)
		synctest.Wait()
		if r.dp.State().Reopens != 0 {
			t.Error("reopened at once")
		}
		r.dp.Set(dataplane.FakeSettings{Failures: -1, ApplyErr: refused, ReopenErr: errors.New("cannot read")})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if r.dp.State().Reopens == 0 || !strings.Contains(r.Status().Error, "cannot read") {
			t.Fatalf("%d attempts to reopen, status %+v", r.dp.State().Reopens, r.Status())
		}
		var notes []string
		if err := r.Query(t.Context(), func(v View) { notes = notEnforced(v.states, []model.EndpointID{podID(2)}, nil) }); err != nil {
			t.Fatal(err)
		}
		if len(notes) != 1 || !strings.Contains(notes[0], "its newest policy may not be in force yet: the dataplane cannot be reopened: cannot read") {
			t.Errorf("explain notes %q", notes)
		}
		applies := r.dp.State().Applies
		r.put(pod(5))
		if r.dp.State().Applies != applies {
			t.Error("applied before it was reopened")
		}
		r.dp.Set(dataplane.FakeSettings{Failures: -1, ApplyErr: refused})
		time.Sleep(11 * time.Second)
		synctest.Wait()
		r.wantEnforced(t, 3)
		for _, i := range []int{2, 4, 5} {
			if r.dp.State().Endpoints[podID(i)] == nil {
				t.Errorf("endpoint %d is not enforced", i)
			}
		}
		if !r.Status().Ready {
			t.Errorf("status %+v", r.Status())
		}
	})
}

func TestSweepsAndResyncsTick(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.dp.Set(dataplane.FakeSettings{SweepErr: errors.New("cannot sweep")})
		r.store.Sync()
		synctest.Wait()
		applies := r.dp.State().Applies
		time.Sleep(180*time.Second + time.Millisecond)
		synctest.Wait()
		if r.dp.State().Sweeps != 90 || r.dp.State().Resyncs != 2 || r.dp.State().Applies-applies != 2 {
			t.Errorf("in three minutes %d sweeps, %d resyncs and %d applications, want 90, 2 and 2", r.dp.State().Sweeps, r.dp.State().Resyncs, r.dp.State().Applies-applies)
		}
		if n := strings.Count(r.log.String(), "cannot sweep"); n != 1 {
			t.Errorf("the log says %d times that sweeps fail, want once", n)
		}
	})
}

func TestAWakeIsAnApplication(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.store.Sync()
		synctest.Wait()
		applies := r.dp.State().Applies
		r.dp.Awake()
		synctest.Wait()
		if r.dp.State().Applies != applies+1 {
			t.Errorf("%d applications, want 1", r.dp.State().Applies-applies)
		}
	})
}

func TestQueriesSeeTheStateBetweenBatches(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.store.Sync()
		r.put(pod(1), pod(2))
		r.put(model.EndpointUpdate{ID: podID(2)})
		r.dp.Set(dataplane.FakeSettings{Delay: time.Second})
		r.put(pod(3)) // being applied now
		began := time.Now()
		local, deleted := 0, true
		err := r.Query(t.Context(), func(v View) {
			local = len(v.Graph.LocalEndpoints())
			_, deleted = v.Graph.FindEndpoint(podID(2))
		})
		if err != nil || local != 2 || deleted {
			t.Errorf("%d local endpoints, error %v, want 2 and none; one that was deleted is there: %v", local, err, deleted)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("the answer came after %s, want when the application was over", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		r.put(pod(4))
		if err := r.Query(ctx, func(View) {}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want that it took too long", err)
		}
	})
}

func TestRunEndsWithItsContextOrWithTheSource(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.store.Sync()
		synctest.Wait() // the application that the cancel is to meet is that of the pod
		r.dp.Set(dataplane.FakeSettings{Delay: time.Minute})
		r.put(pod(1))
		r.cancel()
		synctest.Wait()
		select {
		case <-r.ended:
			t.Fatalf("ended in the middle of an application: %v", r.err)
		default:
		}
		if <-r.ended; r.err != nil {
			t.Errorf("ended with %v, want nothing", r.err)
		}
		r.wantEnforced(t, 1)
		if r.dp.State().Closed {
			t.Error("the dataplane was closed: it is not the loop's")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Query(ctx, func(View) { t.Error("called") }); err == nil {
			t.Error("a query was answered after the end")
		}
	})
	run(t, func(t *testing.T, r *rig) {
		gone := errors.New("gone")
		r.store.Fail(gone)
		if <-r.ended; !errors.Is(r.err, gone) {
			t.Errorf("ended with %v, want %v", r.err, gone)
		}
	})
}

func TestAChangeThatIsNoneForThisNodeCostsTheDataplaneNothing(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.put(pod(1), model.InSync{})
		applies := r.dp.State().Applies
		far := pod(2)
		far.Endpoint.Node = "elsewhere"
		r.put(far)
		if got := r.dp.State().Applies; got != applies {
			t.Errorf("%d applications for a pod of another node", got-applies)
		}
		r.dp.Awake()
		synctest.Wait()
		if got := r.dp.State().Applies; got != applies+1 {
			t.Errorf("%d applications when the dataplane has something to do, want 1", got-applies)
		}
		r.dp.Set(dataplane.FakeSettings{Failures: 1, ApplyErr: errors.New("no memory")})
		r.put(pod(3))
		far.Endpoint.Labels = map[string]string{"a": "b"}
		r.put(far) // what failed before is still to be done
		r.wantEnforced(t, 2)
	})
}
