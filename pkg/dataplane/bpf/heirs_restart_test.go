package bpf

import (
	"errors"
	"maps"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/model"
)

// An agent that starts ends the connections of addresses that have another interface than by the maps, or had none. Where no agent has been it
// ends none, nor does an agent later end those of an address that had no owner.
func TestAStartEndsConnectionsOfFormerOwners(t *testing.T) {
	testutil.Privileged(t)
	dir := testutil.BPFFS(t)
	first := openSmall(t, dir, nil)
	first.kernel.host.(*FakeHost).Ending = func(of map[netip.Addr]bool) error {
		t.Errorf("the first agent ends connections of %v", of)
		return nil
	}
	graph := calc.New("n")
	graph.Apply(append(restartStages[0].updates(), endpoint4("former", "cali0", "10.0.2.1", nil)))
	must(t, first.Apply(t.Context(), graph.Flush()))
	graph.Apply([]model.Update{endpoint4("more", "cali1", "10.0.2.2", nil)})
	must(t, first.Apply(t.Context(), graph.Flush()))
	mustClose(t, first)

	second := openSmall(t, dir, nil)
	defer mustClose(t, second)
	s := second.kernel.host.(*FakeHost).slowTable()
	graph = calc.New("n")
	graph.Apply(append(restartStages[0].updates(), endpoint4("heir", "cali1", "10.0.2.1", nil), endpoint4("late", "cali2", "10.0.2.9", nil)))
	must(t, second.Apply(t.Context(), graph.Flush()))
	s.begins(t, "10.0.2.1", "10.0.2.9")
	if !second.has(1000) || second.has(1003) {
		t.Errorf("an endpoint as before is open: %v, one that has come since: %v", second.has(1000), second.has(1003))
	}
	s.end <- nil
	applyUntil(t, second, "all to be open", func(error) bool { return second.has(1002) && second.has(1003) })
	second.kernel.host.(*FakeHost).Ending = func(of map[netip.Addr]bool) error {
		if !maps.Equal(of, map[netip.Addr]bool{netip.MustParseAddr("10.0.2.2"): true}) {
			t.Errorf("when it stops, it ends connections of %v", of)
		}
		return nil // an address that its last owner does not have any more
	}
}

// An agent was killed when the last pod had gone, before it had removed the pod's connections. No endpoint is in force, and the next one with the
// address waits all the same.
func TestAStartEndsConnectionsThoughNoEndpointIsInForce(t *testing.T) {
	testutil.Privileged(t)
	dir := testutil.BPFFS(t)
	first := openSmall(t, dir, nil) // to which the kernel has no table of connections
	graph := calc.New("n")
	graph.Apply([]model.Update{endpoint4("former", "cali0", "10.0.2.1", nil), model.InSync{}})
	must(t, first.Apply(t.Context(), graph.Flush()))
	graph.Apply([]model.Update{model.EndpointUpdate{ID: model.WorkloadID("t", "former")}})
	must(t, first.Apply(t.Context(), graph.Flush()))
	mustClose(t, first)

	second := openSmall(t, dir, nil)
	defer mustClose(t, second)
	s := second.kernel.host.(*FakeHost).slowTable()
	graph = calc.New("n")
	graph.Apply([]model.Update{endpoint4("heir", "cali1", "10.0.2.1", nil), model.InSync{}})
	must(t, second.Apply(t.Context(), graph.Flush()))
	if second.has(1002) {
		t.Fatal("the heir is open before connections of the former pod are ended")
	}
	s.begins(t, "10.0.2.1")
	s.end <- nil
	applyUntil(t, second, "the heir to be open", func(error) bool { return second.has(1002) })
}

// The first agent of all was killed when it had programmed some endpoints. The others have had their connections before any agent came, so the
// next one ends none of them, although these addresses have no owner.
func TestAStartAfterAFirstAgentThatWasKilledEndsNoConnections(t *testing.T) {
	testutil.Privileged(t)
	dir := testutil.BPFFS(t)
	pods := append(restartStages[0].updates(), endpoint4("early", "cali0", "10.0.2.1", nil), endpoint4("late", "cali1", "10.0.2.2", nil))
	first, graph := openSmall(t, dir, nil), calc.New("n")
	killed := errors.New("killed")
	first.kernel.host.(*FakeHost).Fail = map[uint32]error{1002: killed, 0: killed}
	graph.Apply(pods)
	if err := first.Apply(t.Context(), graph.Flush()); !errors.Is(err, killed) || !first.has(1001) || first.has(1002) {
		t.Fatalf("%v; the endpoints are in force: %v, %v", err, first.has(1001), first.has(1002))
	}
	mustClose(t, first)

	host := NewFakeHost()
	host.Past, host.Ending = Earlier{}, func(of map[netip.Addr]bool) error {
		t.Errorf("connections of %v are ended", of)
		return nil
	}
	second, graph := openSmallOn(t, host, dir, nil), calc.New("n")
	defer mustClose(t, second)
	graph.Apply(pods)
	must(t, second.Apply(t.Context(), graph.Flush()))
	if !second.has(1001) || !second.has(1002) {
		t.Error("not all endpoints are open")
	}
}

// An agent was killed when it had removed a pod from the maps, and before it had removed the pod's connections. The next pod with the address
// comes when the next agent has enforced everything. An address without connections had no other pod.
func TestAnHeirThatComesAfterTheFirstPlanWaits(t *testing.T) {
	testutil.Privileged(t)
	dir := testutil.BPFFS(t)
	first, graph := openSmall(t, dir, nil), calc.New("n") // its host has no table, so it removes no connections
	graph.Apply(append(restartStages[0].updates(), endpoint4("former", "cali0", "10.0.2.1", nil)))
	must(t, first.Apply(t.Context(), graph.Flush()))
	graph.Apply([]model.Update{model.EndpointUpdate{ID: model.WorkloadID("t", "former")}})
	must(t, first.Apply(t.Context(), graph.Flush()))
	mustClose(t, first)

	host := NewFakeHost()
	host.Connected = []netip.Addr{netip.MustParseAddr("10.0.2.1")}
	s := host.slowTable()
	second, graph := openSmallOn(t, host, dir, nil), calc.New("n")
	defer mustClose(t, second)
	graph.Apply(restartStages[0].updates())
	must(t, second.Apply(t.Context(), graph.Flush()))
	applyUntil(t, second, "the table to be read", func(error) bool { return !second.kernel.heirs.former.resumed })
	graph.Apply([]model.Update{endpoint4("heir", "cali1", "10.0.2.1", nil), endpoint4("first", "cali2", "10.0.2.9", nil)})
	must(t, second.Apply(t.Context(), graph.Flush()))
	if second.has(1002) || !second.has(1003) {
		t.Errorf("the heir is open: %v, a pod with another address: %v", second.has(1002), second.has(1003))
	}
	ended := make(chan struct{})
	go func() { // the table rests after it has been read
		defer close(ended)
		s.begins(t, "10.0.2.1")
		s.end <- nil
	}()
	applyUntil(t, second, "the heir to be open", func(error) bool { return second.has(1002) })
	<-ended
}

// An agent with another map layout has judged the first interface. The second one has come since, and its pod may have got the address of another.
func TestAStartAfterAnotherMapLayoutEndsConnectionsOfNewInterfaces(t *testing.T) {
	testutil.Privileged(t)
	host := NewFakeHost()
	host.Past = Earlier{Others: map[uint32]bool{1001: true}}
	dp, graph := openSmallOn(t, host, testutil.BPFFS(t), nil), calc.New("n")
	defer mustClose(t, dp)
	s := host.slowTable()
	graph.Apply([]model.Update{endpoint4("same", "cali0", "10.0.2.1", nil), endpoint4("heir", "cali1", "10.0.2.2", nil), model.InSync{}})
	must(t, dp.Apply(t.Context(), graph.Flush()))
	s.begins(t, "10.0.2.2")
	if !dp.has(1001) || dp.has(1002) {
		t.Errorf("the endpoint of the first interface is open: %v, that of the second one: %v", dp.has(1001), dp.has(1002))
	}
	s.end <- nil
	applyUntil(t, dp, "both to be open", func(error) bool { return dp.has(1002) })
}

// While another dataplane judges, the kernel's table has the connections of pods that it knows and this one does not program before its first plan.
// An agent that goes on with a switch removes none of them: that is for the one who adds its flows.
func TestASwitchThatGoesOnEndsNoConnections(t *testing.T) {
	testutil.Privileged(t)
	dir := testutil.BPFFS(t)
	first := openSmall(t, dir, nil)
	none := func(Successor) error { return nil }
	must(t, JudgeBeside(first, none))
	graph := calc.New("n")
	graph.Apply([]model.Update{endpoint4("early", "cali0", "10.0.2.1", nil), model.InSync{}})
	must(t, first.Apply(t.Context(), graph.Flush()))
	mustClose(t, first) // in the middle of it

	second := openSmall(t, dir, nil)
	defer mustClose(t, second)
	must(t, JudgeBeside(second, none))
	second.kernel.host.(*FakeHost).Ending = func(of map[netip.Addr]bool) error {
		t.Errorf("connections of %v are ended", of)
		return nil
	}
	graph.Apply([]model.Update{endpoint4("late", "cali1", "10.0.2.2", nil)})
	graph.Restate()
	must(t, second.Apply(t.Context(), graph.Flush()))
	if !second.has(1001) || !second.has(1002) {
		t.Error("not all endpoints are open")
	}
}

// A pod has got another further address while no agent ran. It keeps the first one, and has the other one once connections are ended.
func TestAFurtherAddressThatCameWithoutAnAgentWaits(t *testing.T) {
	testutil.Privileged(t)
	dir := testutil.BPFFS(t)
	with := func(further string) []model.Update {
		u := endpoint4("pod", "cali0", "10.0.2.1", nil)
		u.Endpoint.Addrs = append(u.Endpoint.Addrs, netip.MustParseAddr(further))
		return []model.Update{u, model.InSync{}}
	}
	first, graph := openSmall(t, dir, nil), calc.New("n")
	graph.Apply(with("10.0.2.2"))
	must(t, first.Apply(t.Context(), graph.Flush()))
	mustClose(t, first)

	second, graph := openSmall(t, dir, nil), calc.New("n")
	defer mustClose(t, second)
	s := second.kernel.host.(*FakeHost).slowTable()
	graph.Apply(with("10.0.2.3"))
	must(t, second.Apply(t.Context(), graph.Flush()))
	s.begins(t, "10.0.2.3")
	has := func(a string) bool {
		e, ok := second.kernel.endpoints.Get(1001)
		return ok && hasAddr(e, netip.MustParseAddr(a))
	}
	if !has("10.0.2.1") || has("10.0.2.3") {
		t.Errorf("while connections are ended it has its first address: %v, the other one: %v", has("10.0.2.1"), has("10.0.2.3"))
	}
	s.end <- nil
	applyUntil(t, second, "the pod to have its address", func(error) bool { return has("10.0.2.3") })
	second.kernel.host.(*FakeHost).Ending = func(map[netip.Addr]bool) error { return nil }
}

// An agent that stops ends the connections of addresses that wait for it, also those of pods that have gone: the next agent does not know of them.
func TestAStopEndsConnectionsThatAreDue(t *testing.T) {
	testutil.Privileged(t)
	dp := openSmall(t, testutil.BPFFS(t), nil)
	var ended []map[netip.Addr]bool
	refused := errors.New("refused")
	dp.kernel.host.(*FakeHost).Ending = func(of map[netip.Addr]bool) error {
		if ended = append(ended, of); len(ended) == 1 {
			return refused
		}
		return nil
	}
	graph := calc.New("n")
	graph.Apply(append(restartStages[0].updates(), endpoint4("former", "cali0", "10.0.2.1", nil)))
	must(t, dp.Apply(t.Context(), graph.Flush()))
	graph.Apply([]model.Update{model.EndpointUpdate{ID: model.WorkloadID("t", "former")}})
	must(t, dp.Apply(t.Context(), graph.Flush()))
	applyUntil(t, dp, "the failure to be reported", func(err error) bool { return errors.Is(err, refused) })
	mustClose(t, dp)
	if n := len(ended); n != 2 || !ended[n-1][netip.MustParseAddr("10.0.2.1")] {
		t.Errorf("connections of %v are ended", ended)
	}
}

// An agent with another map layout has judged the interface of a pod whose object had gone before the next agent started. The interface goes, too,
// and one that comes later gets its number, and its pod the address.
func TestTheNumberOfAnInterfaceOfAnotherMapLayoutBringsNoConnections(t *testing.T) {
	testutil.Privileged(t)
	host := NewFakeHost()
	host.Past, host.Connected = Earlier{Others: map[uint32]bool{1000: true, 1001: true}}, []netip.Addr{netip.MustParseAddr("10.0.2.1")}
	s := host.slowTable()
	dp, graph := openSmallOn(t, host, testutil.BPFFS(t), nil), calc.New("n")
	defer mustClose(t, dp)
	graph.Apply(restartStages[0].updates())
	must(t, dp.Apply(t.Context(), graph.Flush()))
	delete(host.Ifaces, "cali0")
	host.News = []uint32{1001}
	applyUntil(t, dp, "the table to be read", func(error) bool { return !dp.kernel.heirs.former.resumed })
	host.Ifaces["cali9"], host.News = 1001, []uint32{1001}
	graph.Apply([]model.Update{endpoint4("heir", "cali9", "10.0.2.1", nil)})
	must(t, dp.Apply(t.Context(), graph.Flush()))
	if dp.has(1001) {
		host.Ending = func(map[netip.Addr]bool) error { return nil }
		t.Fatal("the heir is open before connections of the former pod are ended")
	}
	ended := make(chan struct{})
	go func() { // the table rests after it has been read
		defer close(ended)
		s.begins(t, "10.0.2.1")
		s.end <- nil
	}()
	applyUntil(t, dp, "the heir to be open", func(error) bool { return dp.has(1001) })
	<-ended
}
