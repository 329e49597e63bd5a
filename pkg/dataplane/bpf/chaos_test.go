package bpf

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/model"
)

// chaos is a node to which anything may happen at any time.
type chaos struct {
	*node
	random *rand.Rand
	dir    string
	state  map[model.Key]model.Update // of the datastore
	stage  stage
	ran    []string
}

// TestWhateverHappensEndsWhereItShould: policies change, interfaces come and go and cannot be attached, plans are left
// after any step, agents are killed, restarted and reopened, entries are altered; once that stops, all is as wanted.
func TestWhateverHappensEndsWhereItShould(t *testing.T) {
	testutil.Privileged(t)
	rounds, seeds := 40, uint64(12)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		c := &chaos{random: rand.New(rand.NewPCG(seed, 4711)), dir: testutil.BPFFS(t), state: map[model.Key]model.Update{}}
		c.node = openNode(t, c.dir, nil)
		c.put(restartStages[0])
		for range rounds {
			c.step(t)
		}
		c.settle(t, seed)
		mustClose(t, c.BPF)
	}
}

// put makes the datastore that of the stage, and applies the difference to the graph.
func (c *chaos) put(s stage) {
	c.stage = s
	now := map[model.Key]model.Update{}
	for _, u := range s.updates() {
		key, _ := model.KeyOf(u)
		now[key] = u
	}
	var updates []model.Update
	for key, u := range c.state {
		if _, stays := now[key]; !stays {
			gone := u.(model.EndpointUpdate)
			gone.Endpoint = nil
			updates = append(updates, gone)
		}
	}
	for _, u := range now {
		updates = append(updates, u)
	}
	c.state = now
	c.graph.Apply(updates)
}

// anew is a graph that has everything to say again.
func (c *chaos) anew() {
	c.graph = calc.New("n")
	for _, u := range c.state {
		c.graph.Apply([]model.Update{u})
	}
}

func (c *chaos) step(t *testing.T) {
	names := []string{"calia", "cali0", "cali1", "cali2"}
	steps := []struct {
		name string
		do   func()
	}{
		{"change", func() {
			s := restartStages[c.random.IntN(len(restartStages))]
			s.role = []string{"friend", "other", "stranger"}[c.random.IntN(3)]
			s.more = c.random.IntN(4)
			c.put(s)
		}},
		{"apply", func() { _ = c.Apply(context.Background(), c.graph.Flush()) }},
		{"apply", func() { _ = c.Apply(context.Background(), c.graph.Flush()) }},
		{"some steps", func() {
			if c.step0() {
				return
			}
			c.BPF.state.plans.Plan, c.BPF.state.plans.Step = c.BPF.state.plans.Compiler.Update(c.graph.Flush()), 0
			for range c.random.IntN(len(order)) {
				if order[c.BPF.state.plans.Step].do(c.BPF.state) != nil {
					return
				}
				c.BPF.state.plans.Step++
			}
		}},
		{"interface comes or goes", func() {
			name := names[c.random.IntN(len(names))]
			if c.host.Ifaces[name] != 0 && c.random.IntN(2) == 0 {
				delete(c.host.Ifaces, name)
				return
			}
			number := uint32(1000 + c.random.IntN(8))
			for other, n := range c.host.Ifaces {
				if n == number {
					delete(c.host.Ifaces, other)
				}
			}
			c.host.Ifaces[name] = number
			c.host.News = append(c.host.News, number)
		}},
		{"fault", func() { c.host.Fail[uint32([]int{0, 1000, 1001, 1002}[c.random.IntN(4)])] = errors.New("refused") }},
		{"faults end", func() { clear(c.host.Fail) }},
		{"restart", func() {
			if err := c.BPF.Close(); err != nil && c.host.Fail[0] == nil { // it guards the node once more
				t.Fatal(err)
			}
			host := c.host
			host.Attached = map[uint32]string{}
			dp, err := OpenBPF(c.config, host, c.kernel.log)
			if err != nil {
				t.Fatal(err)
			}
			c.BPF = dp
			c.anew()
		}},
		{"reopen", func() {
			if err := c.Reopen(); err != nil {
				t.Fatal(err)
			}
			c.anew()
		}},
		{"damage", func() {
			if list := c.kernel.endpoints.List(); len(list) > 0 {
				e := list[c.random.IntN(len(list))]
				e.Addr4[3]++
				if err := c.SetKernel(e); err != nil {
					t.Fatal(err)
				}
			}
			c.Resync()
		}},
	}
	s := steps[c.random.IntN(len(steps))]
	c.ran = append(c.ran, s.name)
	s.do()
}

// step0 reports whether nothing may be planned now, since something is being carried out or waits.
func (c *chaos) step0() bool {
	return c.BPF.state.plans.Step < len(order) || len(c.BPF.state.plans.Waiting) > 0
}

func (c *chaos) settle(t *testing.T, seed uint64) {
	clear(c.host.Fail)
	c.host.Ifaces = map[string]uint32{"calia": 1000, "cali0": 1001, "cali1": 1002, "cali2": 1003}
	c.Resync()
	if err := c.Apply(context.Background(), c.graph.Flush()); err != nil {
		t.Fatalf("seed %d: %v; ran %q", seed, err, c.ran)
	}
	want := map[string]uint32{"10.0.0.10": 1000}
	for i := range c.stage.more {
		want["10.0.2."+string(rune('1'+i))] = uint32(1001 + i)
	}
	c.wantPlaces(t, "in the end", want)
	for _, src := range []string{"10.0.0.1", "10.0.0.2", "10.9.9.9"} {
		for _, port := range []uint16{80, 443, 22} {
			if got, want := passes(t, c.BPF, src, port), c.stage.allows(src, port); got != want {
				t.Errorf("%s to port %d passes: %v, want %v", src, port, got, want)
			}
		}
	}
	if live := len(c.BPF.state.tables.slots.Live()); live != len(c.BPF.state.tables.list) || len(c.BPF.state.tables.unused) != 0 {
		t.Errorf("%d slots are live for %d tables, %v wait to be released", live, len(c.BPF.state.tables.list), c.BPF.state.tables.unused)
	}
	if t.Failed() {
		t.Fatalf("seed %d: ran %q", seed, slices.Compact(c.ran))
	}
}
