package bpfmaps

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// victimEnv names the BPF file system of an agent that is about to be killed. seedEnv repeats a run's choices: what
// the agents publish, and when they are killed, as far as the machine lets them get equally far.
const (
	victimEnv = "MARGAY_TEST_VICTIM"
	seedEnv   = "MARGAY_TEST_SEED"
)

// The policy an endpoint refers to is, at any moment, complete and the one published under its generation; so an agent
// killed at any point leaves maps in which that is so, and from which the next one goes on.
func TestAnAgentKilledAtAnyPointLeavesWholePolicies(t *testing.T) {
	if bpffs := os.Getenv(victimEnv); bpffs != "" {
		victim(t, Options{BPFFS: bpffs, MaxEntries: small}, rand.New(rand.NewPCG(testutil.Number(t, seedEnv, 0), 1)))
	}
	testutil.Privileged(t)
	o := Options{BPFFS: testutil.BPFFS(t), MaxEntries: small}
	last := uint32(0)
	seed := testutil.Number(t, seedEnv, uint64(time.Now().UnixNano()))
	t.Logf("%s=%d", seedEnv, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 8 {
		agent := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
		agent.Env = append(os.Environ(), victimEnv+"="+o.BPFFS, fmt.Sprintf("%s=%d", seedEnv, random.Uint64()))
		ready, err := agent.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := ready.Read(make([]byte, 1)); err != nil {
			t.Fatalf("the agent does not start: %v", err)
		}
		time.Sleep(time.Duration(random.IntN(60_000)) * time.Microsecond) // when it dies, not a synchronisation
		if err := agent.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := agent.Wait(); err == nil {
			t.Fatal("the agent ended before it was killed")
		}
		last = checkSurvivor(t, o, last)
	}
	if last < 8 {
		t.Errorf("the agents got no further than generation %d", last)
	}
}

// victim publishes policies for two endpoints until it is killed: what a slot holds tells which generation it is of.
func victim(t *testing.T, o Options, random *rand.Rand) {
	m := mustOpen(t, o)
	e := mustEndpoints(t, m)
	g, err := m.OpenGenerations()
	if err != nil {
		t.Fatal(err)
	}
	s := mustSlots(t, m, inUse(e)...)
	for round := 0; ; round++ {
		for ifindex := uint32(1); ifindex <= 2; ifindex++ {
			generation, err := g.Next()
			if err != nil {
				t.Fatal(err)
			}
			slot := mustPublish(t, s, policyContent(1+random.IntN(60), generation))[0]
			ep, exists := e.Get(ifindex)
			old, _ := SplitPolicyWord(ep.Ingress)
			if !exists {
				ep = bpf.Endpoint{Ifindex: ifindex, Flags: bpf.EPReady}
			}
			ep.Ingress = PolicyWord(slot, generation)
			if err = e.Set(ep); err == nil && old != 0 {
				err = s.Release(old)
			}
			if round%7 == 6 {
				old, _ = SplitPolicyWord(PolicyWord(slot, generation))
				err = errors.Join(err, e.Remove(ifindex), s.Release(old))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if round == 0 {
			os.Stdout.WriteString(".")
		}
	}
}

func inUse(e *Endpoints) []uint32 {
	var slots []uint32
	for _, ep := range e.List() {
		slot, _ := SplitPolicyWord(ep.Ingress)
		slots = append(slots, slot)
	}
	return slots
}

func checkSurvivor(t *testing.T, o Options, last uint32) uint32 {
	t.Helper()
	m, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	e := mustEndpoints(t, m)
	highest := last
	for _, ep := range e.List() {
		slot, generation := SplitPolicyWord(ep.Ingress)
		if ep.Flags&bpf.EPReady == 0 {
			continue // being made or removed: nothing passes
		}
		c, err := m.ReadSlot(slot)
		if err != nil {
			t.Fatal(err)
		}
		if want := policyContent(int(c.Shape.Rules), generation); c.Shape != want.Shape {
			t.Fatalf("slot %d, generation %d: shape %+v", slot, generation, c.Shape)
		}
		if diff, err := differs(m, slot, policyContent(int(c.Shape.Rules), generation)); err != nil || diff != "" {
			t.Fatalf("slot %d, generation %d: %s (%v)", slot, generation, diff, err)
		}
		highest = max(highest, generation)
	}
	g, err := m.OpenGenerations()
	if err != nil {
		t.Fatal(err)
	}
	next, err := g.Next()
	if err != nil || next <= highest {
		t.Fatalf("generation %d after %d (%v)", next, highest, err)
	}
	return highest
}
