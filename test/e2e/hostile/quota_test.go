package hostile

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
)

const (
	quotaOpen  = 500 // --flow-quota
	quotaFlood = 2_000
	quotaKills = 4
)

// chargedFlows are the open flows that each share is charged for, by the count of the programs and by the flows on record.
func chargedFlows(t *testing.T, m *bpfmaps.Maps) (counted, found [bpf.Shares]int) {
	t.Helper()
	list, err := m.Flows.Shares()
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range list[:bpf.Shares] {
		counted[i] = int(int32(s.Open))
	}
	var key []byte
	var e bpf.CtEntry
	for _, name := range []string{bpf.MargayMapCt4, bpf.MargayMapCt6} {
		all := m.Map(name).Iterate()
		for all.Next(&key, &e) {
			if e.Kept != 0 && e.Kept <= bpf.Shares {
				found[e.Kept-1]++
			}
		}
		if err := all.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) { // then it is counted again
			t.Fatalf("read map %s: %v", name, err)
		}
	}
	return counted, found
}

// TestAKilledAgentLosesNoQuota: two pods of a tenant open more flows than their quota all the time, while the agent is killed and started again. The quota
// holds with each agent. Established flows of others go on, and new ones begin. In the end the count of the tenant's flows is what it
// has on record, and all of its quota is free again once these have expired.
func TestAKilledAgentLosesNoQuota(t *testing.T) {
	testcluster.NeedsBPF(t, "flows are in the kernel's table")
	s := newScene(t, "--flow-quota", fmt.Sprint(quotaOpen), "--timeout-tcp-established", "10s", "--timeout-tcp-syn", "10s", "--timeout-tcp-fin", "5s")
	x, server := s.Pod(s.n1, "evil/x"), s.Pod(s.n1, "server")
	s.Policy("server", testcluster.OnlyOpen)
	s.AwaitPolicies(server, 1, 0)
	muteStack(t, s.m)
	muteStack(t, x)
	honest := s.StartTraffic(s.a, server)
	ctx, stop := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	rounds := 0
	flood.Go(func() {
		for ; ctx.Err() == nil; rounds++ {
			complete(t, s.m, x, quotaFlood)
		}
	})
	t.Cleanup(func() {
		stop()
		flood.Wait()
	})
	m := s.Agent(0).Maps()
	most := func() (n int) {
		counted, _ := chargedFlows(t, m)
		for _, c := range counted {
			n = max(n, c)
		}
		return n
	}
	testutil.WaitFor(t, soon, "the tenant to use up its quota", func() bool { return most() >= quotaOpen })
	for range quotaKills {
		s.Agent(0).Kill()
		honest.Some("without an agent")
		s.Agent(0).Start()
		honest.Some("with the next agent")
		if n := most(); n > quotaOpen+quotaOpen/10 { // a program counts one too many before it takes it back
			t.Errorf("a share has %d open flows, the quota is %d", n, quotaOpen)
		}
	}
	stop()
	flood.Wait()
	honest.Stop()
	testutil.WaitFor(t, soon, "the counts to be what is on record", func() bool {
		counted, found := chargedFlows(t, m)
		return counted == found
	})
	testutil.WaitFor(t, soon, "the tenant's flows to expire", func() bool { return most() < quotaOpen/10 })
	t.Logf("%d times %d flows", rounds, quotaFlood)
	testutil.WaitFor(t, soon, "the quota to be used up again", func() bool {
		complete(t, s.m, x, quotaFlood) // flows of the round before may have expired
		return most() >= quotaOpen
	})
}
