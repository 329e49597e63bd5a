package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// pinned is what an agent has pinned, opened by somebody who has no business there.
type pinned struct {
	maps           *bpfmaps.Maps
	endpoints      *bpfmaps.Endpoints
	client, server *lab.Pod
}

func openPinned(t *testing.T, p *testcluster.Process) *pinned {
	t.Helper()
	testcluster.NeedsBPF(t, "the test reads BPF maps")
	dir := p.Flags[slices.Index(p.Flags, "--bpffs")+1]
	m, err := bpfmaps.OpenPinned(bpfmaps.Options{BPFFS: dir})
	if err != nil {
		t.Fatal(err)
	}
	e, err := m.OpenEndpoints()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(e.Close(), m.Close()); err != nil {
			t.Error(err)
		}
	})
	return &pinned{maps: m, endpoints: e}
}

// restored reports whether what was damaged is as it was.
type restored func() bool

// remove deletes an entry of a map.
func remove[K comparable](m *ebpf.Map, key K) (restored, error) {
	was, err := m.LookupBytes(&key)
	if err != nil {
		return nil, err
	}
	return func() bool {
		now, err := m.LookupBytes(&key)
		return err == nil && slices.Equal(was, now)
	}, m.Delete(&key)
}

// first is the first key of a map.
func first[K comparable](m *ebpf.Map) (key K, err error) {
	return key, m.NextKey(nil, &key)
}

// alter changes the server's entry among the endpoints.
func (p *pinned) alter(change func(*bpf.Endpoint)) (restored, error) {
	was, ok := p.endpoints.Get(uint32(p.server.IfIndex()))
	if !ok {
		return nil, errors.New("the server is no endpoint")
	}
	now := was
	change(&now)
	return func() bool {
		e, ok := p.endpoints.Get(was.Ifindex)
		return ok && e.Flags == was.Flags && e.Ingress>>32 == was.Ingress>>32 && e.Addr4 == was.Addr4
	}, p.endpoints.Set(now)
}

// links are the paths of all pins whose names begin so.
func (p *pinned) links(prefix string) []string {
	paths, _ := filepath.Glob(filepath.Join(p.maps.LinkDir(), prefix+"*")) // fails on bad patterns only
	return paths
}

// cut detaches links by force, or removes their pins.
func (p *pinned) cut(prefix string, detach, unpin bool) (restored, error) {
	paths := p.links(prefix)
	if len(paths) == 0 {
		return nil, errors.New("no link " + prefix)
	}
	var errs []error
	for _, path := range paths {
		if detach {
			l, err := link.LoadPinnedLink(path, nil)
			if err != nil {
				return nil, err
			}
			errs = append(errs, l.Detach(), l.Close())
		}
		if unpin {
			errs = append(errs, os.Remove(path))
		}
	}
	return func() bool {
		now := p.links(prefix) // a netfilter link may come again with another priority, and so another name
		return len(now) == len(paths) && p.attached(now)
	}, errors.Join(errs...)
}

// attached reports whether all links are; of a netfilter link the kernel does not tell.
func (p *pinned) attached(paths []string) bool {
	for _, path := range paths {
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			return false
		}
		info, err := l.Info()
		if err = errors.Join(err, l.Close()); err != nil {
			return false
		}
		if tcx := info.TCX(); tcx != nil && tcx.Ifindex == 0 {
			return false
		}
	}
	return true
}

func (p *pinned) tcx(pod *lab.Pod, side string) string {
	return fmt.Sprintf("%d-%s", pod.IfIndex(), side)
}

const (
	saysMaps      = "maps had been changed by somebody else"
	saysPolicy    = "a published policy had been changed by somebody else"
	saysEndpoints = "an endpoint had been changed by somebody else"
	saysPrograms  = "programs had been detached by somebody else"
	saysHooks     = "netfilter programs had been detached by somebody else"
)

// damages are done one after the other. Where traffic is said not to notice, not a packet may be lost. None of them
// may let through what policy denies between pods of the node, but those that make a policy another one.
var damages = []struct {
	what     string
	do       func(*pinned) (restored, error)
	says     string
	harmless bool
	opens    bool
}{
	{what: "a name of a rule is deleted", says: saysMaps, harmless: true, do: func(p *pinned) (restored, error) {
		m := p.maps.Map(bpf.MargayMapRuleNames)
		key, err := first[uint32](m)
		if err != nil {
			return nil, err
		}
		return remove(m, key)
	}},
	{what: "the pin of a TCX link is removed", says: saysPrograms, harmless: true, do: func(p *pinned) (restored, error) {
		return p.cut(p.tcx(p.server, "egress"), false, true)
	}},
	{what: "the pins of netfilter links are removed", says: saysHooks, harmless: true, do: func(p *pinned) (restored, error) {
		return p.cut("judge-forward", false, true)
	}},
	{what: "a pod's IPv4 address is deleted", says: saysMaps, do: func(p *pinned) (restored, error) {
		return remove(p.maps.Map(bpf.MargayMapIp4Host), bpfmaps.IP4(p.client.Addr4()))
	}},
	{what: "a pod's IPv6 address is deleted", says: saysMaps, do: func(p *pinned) (restored, error) {
		return remove(p.maps.Map(bpf.MargayMapIp6Host), bpfmaps.IP6(p.client.Addr6()))
	}},
	{what: "the sets of a class are deleted", says: saysMaps, do: func(p *pinned) (restored, error) {
		m := p.maps.Map(bpf.MargayMapClassSets)
		// The client's: an agent that has restarted may have classes left to which no address belongs.
		a, ok, err := p.maps.Addresses.Lookup(p.client.Addr4())
		if err != nil || !ok {
			return nil, fmt.Errorf("read the client's address: found %v, %w", ok, err)
		}
		return remove(m, bpf.ClassChunk{Class: a.Class})
	}},
	{what: "a policy is emptied", says: saysPolicy, do: func(p *pinned) (restored, error) {
		e, _ := p.endpoints.Get(uint32(p.server.IfIndex()))
		slot := uint32(e.Ingress >> 32)
		m := p.maps.Map(bpf.MargayMapSlots)
		return func() bool {
			now, ok := p.endpoints.Get(e.Ifindex)
			return ok && now.Ingress>>32 != e.Ingress>>32
		}, m.Put(slot, make([]byte, m.ValueSize()))
	}},
	{what: "an endpoint is closed", says: saysEndpoints, do: func(p *pinned) (restored, error) {
		return p.alter(func(e *bpf.Endpoint) { e.Flags = 0 })
	}},
	{what: "an endpoint loses its address", says: saysEndpoints, do: func(p *pinned) (restored, error) {
		return p.alter(func(e *bpf.Endpoint) { e.Addr4 = [4]byte{} })
	}},
	{what: "an endpoint's program towards the pod is detached", says: saysPrograms, do: func(p *pinned) (restored, error) {
		return p.cut(p.tcx(p.server, "egress"), true, false)
	}},
	{what: "an endpoint's program from the pod is detached and its pin removed", says: saysPrograms, do: func(p *pinned) (restored, error) {
		return p.cut(p.tcx(p.client, "ingress"), true, true)
	}},
	{what: "all netfilter programs are detached", says: saysHooks, do: func(p *pinned) (restored, error) {
		return p.cut("judge-", true, false)
	}},
	{what: "the program before conntrack is detached", says: saysHooks, do: func(p *pinned) (restored, error) {
		return p.cut("guard-pre_routing", true, false)
	}},
	{what: "an endpoint gets the policy of another", says: saysEndpoints, opens: true, do: func(p *pinned) (restored, error) {
		other, _ := p.endpoints.Get(uint32(p.client.IfIndex()))
		return p.alter(func(e *bpf.Endpoint) { e.Ingress = other.Ingress })
	}},
}

// The same while no agent runs, when nothing holds a link but its pin: what is left keeps closed what it can, and the next
// agent puts all of it right. Without its program towards the pod nothing judges what comes to it from other machines;
// what comes from pods of the node is judged where it leaves them.
func TestHandMadeDamageWithoutAnAgent(t *testing.T) {
	testcluster.NeedsBPF(t, "the damage is done to BPF maps")
	c := newCluster(t, oneNode)
	client, server, out := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server"), c.External("out")
	c.Policy("server", onlyOpen)
	c.AwaitPolicies(server, 1, 0)
	c.Serve(server.Host, openPort)
	c.Serve(server.Host, closedPort)
	p := openPinned(t, c.Agent(0))
	p.client, p.server = client, server
	everybody := []*lab.Host{client.Host, out.Host}
	for _, d := range []struct {
		what, links string
		closed      []*lab.Host // to these
	}{
		{"towards the pod", p.tcx(server, "egress"), []*lab.Host{client.Host}},
		{"from the pod", p.tcx(server, "ingress"), everybody},
		{"from the other pod", p.tcx(client, "ingress"), everybody},
		{"forwarding", "judge-forward", everybody},
		{"out of the node", "guard-local_out", everybody},
		{"before conntrack", "guard-pre_routing", everybody},
	} {
		c.Agent(0).Kill()
		whole, err := p.cut(d.links, false, true)
		if err != nil {
			t.Fatal(err)
		}
		for _, from := range d.closed {
			c.Reach(from, server.Host, closedPort, false)
		}
		c.Agent(0).Start()
		c.AwaitPolicies(server, 1, 0)
		if !whole() {
			t.Errorf("%s: not all links are there", d.what)
		}
		for _, from := range everybody {
			c.Reach(from, server.Host, openPort, true)
			c.Reach(from, server.Host, closedPort, false)
		}
		if t.Failed() {
			t.Fatalf("without the programs %s", d.what)
		}
	}
}

// Whatever somebody does to what is pinned and attached is put right with the next look at it, and told in one line.
func TestHandMadeDamageIsRepaired(t *testing.T) {
	testcluster.NeedsBPF(t, "the damage is done to BPF maps")
	c := newCluster(t, oneNode, "--resync-every", "500ms")
	client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
	c.Policy("server", `{podSelector: {matchLabels: {app: server}}, ingress: [{
  from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 80}, {port: 80, protocol: UDP}]}]}`)
	c.AwaitPolicies(server, 1, 0)
	p := openPinned(t, c.Agent(0))
	p.client, p.server = client, server
	tr := c.StartTraffic(client, server)
	calm := true
	for _, d := range damages {
		if calm && !d.harmless {
			tr.Some("at the last harmless damage")
			tr.Stop()
			calm = false
		}
		t.Run(d.what, func(t *testing.T) {
			_, length := c.Agent(0).Warnings(t, 0)
			accepted := tr.Denied.Accepted()
			whole, err := d.do(p)
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			// Whether it is noticed at all is what counts; how soon is up to --resync-every.
			testutil.WaitFor(t, soon, "a warning", func() bool {
				lines, _ = c.Agent(0).Warnings(t, length)
				if !calm && !d.opens {
					echo.DialTCP(client.Host, tr.Denied.Addr4(), never/4)
				}
				return len(lines) > 0 && whole()
			})
			if len(lines) != 1 || !strings.Contains(lines[0], `"msg":"`+d.says) {
				t.Errorf("the agent says %q, want one line: %s", lines, d.says)
			}
			if n := tr.Denied.Accepted() - accepted; n > 0 && !d.opens {
				t.Errorf("%d denied connections accepted meanwhile", n)
			}
			if calm {
				tr.Some("after repair")
				return
			}
			outer := c.T
			c.T = t
			defer func() { c.T = outer }()
			c.Reach(client.Host, server.Host, openPort, true)
			if got := echo.DialTCP(client.Host, tr.Denied.Addr4(), never); got.Outcome != echo.Timeout || got.Established {
				t.Errorf("denied after repair: %+v", got)
			}
		})
	}
	var repairs float64
	for line := range strings.Lines(scrape(t, c.Node(0))) {
		if _, err := fmt.Sscanf(line, "margay_repairs_total %g", &repairs); err == nil {
			break
		}
	}
	if repairs < float64(len(damages)) {
		t.Errorf("%v repairs are counted after %d kinds of damage", repairs, len(damages))
	}
}
