package main

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/margay-project/margay/pkg/model"
)

// step is what one kind of change costs in a cluster of deployments, from the update to the changes it causes.
type step struct {
	Name   string  `json:"name"`
	Micros float64 `json:"micros"` // median
	P99    float64 `json:"p99"`
	Bytes  uint64  `json:"bytes"` // allocated
	Allocs uint64  `json:"allocs"`
}

// changes measures changes one by one, in a cluster of pods pods as deployments makes it.
func changes(c *core, pods int) []step {
	remote := 4 // 0 is local
	fresh := func(i int) model.Update {
		u := pod(i, nil)
		if i/perDeployment%5 == 0 {
			u.Endpoint.Labels["pod"] = u.ID.Name
		}
		return u
	}
	return []step{
		timed("nothing to do", 2000, func(int) []model.Update { return nil }, c),
		timed("status of a remote pod", 2000, func(i int) []model.Update { return []model.Update{fresh(remote + i%4)} }, c),
		timed("remote pod comes", 1000, func(i int) []model.Update { return []model.Update{fresh(pods + i)} }, c),
		timed("remote pod goes", 1000, func(i int) []model.Update { return []model.Update{model.Absent(fresh(pods + i))} }, c),
		timed("label of a namespace of 10,000 pods", 20, func(i int) []model.Update {
			return []model.Update{namespace(0, fmt.Sprintf("color-%d", i))}
		}, c),
		timed("label of a namespace of 10,000 pods, in rules", 20, func(i int) []model.Update {
			u := namespace(0, "blue")
			u.Profile.Labels["pcns.env"] = fmt.Sprintf("env-%d", i%2)
			return []model.Update{u}
		}, c),
	}
}

func timed(name string, times int, update func(int) []model.Update, c *core) step {
	var took []float64
	var bytes, allocs uint64
	var was, is runtime.MemStats
	for i := range times {
		u := update(i)
		measured := i%max(1, times/20) == 0 // reading the statistics stops the world
		if measured {
			runtime.ReadMemStats(&was)
		}
		started := time.Now()
		c.take(u)
		took = append(took, float64(time.Since(started).Nanoseconds())/1e3)
		if measured {
			runtime.ReadMemStats(&is)
			bytes, allocs = bytes+is.TotalAlloc-was.TotalAlloc, allocs+is.Mallocs-was.Mallocs
		}
	}
	slices.Sort(took)
	samples := uint64(min(times, 20))
	return step{Name: name, Micros: took[len(took)/2], P99: took[len(took)*99/100], Bytes: bytes / samples, Allocs: allocs / samples}
}
