//go:build linux

package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/lint"
	"github.com/margay-project/margay/pkg/model"
)

// step is what one kind of change costs in a cluster of deployments, from the update to what the compiler makes of it, or
// one kind of question.
type step struct {
	Name   string  `json:"name"`
	Micros float64 `json:"micros"` // median, of CPU time of its thread: other things run on this machine, too
	P99    float64 `json:"p99"`
	Bytes  uint64  `json:"bytes"` // allocated
	Allocs uint64  `json:"allocs"`
}

// changes measures changes, and questions, one by one, in a cluster of pods pods as deployments makes it.
func changes(c *core, pods int) []step {
	remote := 4 // 0 is local
	fresh := func(i int) model.Update {
		u := pod(i, nil)
		if i/perDeployment%5 == 0 {
			u.Endpoint.Labels["pod"] = u.ID.Name
		}
		return u
	}
	labelled := func(i int, name string, value any) model.Update {
		u := pod(i, nil)
		u.Endpoint.Labels[name] = fmt.Sprint(value)
		return u
	}
	return []step{
		timed("nothing to do", 2000, func(int) { c.flush(nil) }),
		changed("status of a remote pod", 2000, func(i int) []model.Update { return []model.Update{fresh(remote + i%4)} }, c),
		changed("label of a remote pod, in no rule", 2000, func(i int) []model.Update { return []model.Update{labelled(remote+i%4, "version", i/4)} }, c),
		changed("label of a remote pod, in rules", 2000, func(i int) []model.Update {
			return []model.Update{labelled(remote+i%4, "app", fmt.Sprintf("app-%d", i/4%10))}
		}, c),
		changed("remote pod comes", 1000, func(i int) []model.Update { return []model.Update{fresh(pods + i)} }, c),
		changed("remote pod goes", 1000, func(i int) []model.Update { return []model.Update{model.Absent(fresh(pods + i))} }, c),
		changed("label of a namespace of 10,000 pods", 20, func(i int) []model.Update {
			return []model.Update{namespace(0, fmt.Sprintf("color-%d", i))}
		}, c),
		changed("label of a namespace of 10,000 pods, in rules", 20, func(i int) []model.Update {
			u := namespace(0, "blue")
			u.Profile.Labels["pcns.env"] = fmt.Sprintf("env-%d", i%2)
			return []model.Update{u}
		}, c),
		timed("explain, two remote pods", 10, func(i int) { explainOne(c, pods/2+i, pods/3) }),
		timed("of that, while nothing is enforced", 10, func(i int) { c.graph.Around([]model.EndpointID{pod(pods/2+i, nil).ID, pod(pods/3, nil).ID}, nil) }),
		timed("lint, the whole cluster", 1, func(int) {
			part, _ := c.graph.Sample()
			lint.Check(part.Objects())
		}),
		timed("of that, while nothing is enforced", 3, func(int) { c.graph.Sample() }),
	}
}

// explainOne explains a connection between two remote pods, as the agent does it.
func explainOne(c *core, from, to int) {
	r := explain.Request{
		Src: pod(from, nil).ID.String(), Dst: pod(to, nil).ID.String(), Protocol: model.ProtoTCP, Port: 80, SourcePort: 1234,
	}
	q, err := explain.Resolve(c.graph, r)
	if err == nil {
		_, err = explain.NewState(c.graph.Around(q.Ends()).Objects()).Answer(q)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
	}
}

// changed measures changes of the datastore.
func changed(name string, times int, update func(int) []model.Update, c *core) step {
	updates := make([][]model.Update, times)
	for i := range updates {
		updates[i] = update(i)
	}
	return timed(name, times, func(i int) { c.take(updates[i]) })
}

// timed does something some times.
func timed(name string, times int, do func(int)) step {
	var took []float64
	var bytes, allocs uint64
	var was, is runtime.MemStats
	every := max(1, times/20) // reading the statistics stops the world
	samples := uint64(0)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i := range times {
		measured := i%every == 0
		if measured {
			runtime.ReadMemStats(&was)
		}
		started := threadTime()
		do(i)
		took = append(took, float64((threadTime()-started).Nanoseconds())/1e3)
		if measured {
			runtime.ReadMemStats(&is)
			bytes, allocs, samples = bytes+is.TotalAlloc-was.TotalAlloc, allocs+is.Mallocs-was.Mallocs, samples+1
		}
	}
	slices.Sort(took)
	return step{Name: name, Micros: took[len(took)/2], P99: took[len(took)*99/100], Bytes: bytes / samples, Allocs: allocs / samples}
}

// threadTime is the CPU time that this thread has used; 0 if that is not to be had.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
