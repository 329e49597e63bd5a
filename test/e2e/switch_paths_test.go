package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/lab"
)

// pathScene is a node with connections over every kind of path. Each pod may only do what is done here, so that answers need their flow.
// The server's policy does not name the node, which reaches its pods all the same.
type pathScene struct {
	*cluster
	client, server *lab.Pod
	outside        *lab.External
	paths          []path
	flags          []string // of the agent, beside those of a mode
}

// path is a way from an opener to a responder.
type path struct {
	what string
	from *lab.Host
	to   netip.AddrPort // as the opener knows it
	at   *lab.Host      // the responder
	port uint16         // where it listens
}

func (p path) String() string { return fmt.Sprintf("%s, to %v", p.what, p.to) }

// responder is where it listens.
func (p path) responder() netip.AddrPort {
	return netip.AddrPortFrom(p.at.Addr(p.to.Addr().Is6()), p.port)
}

func newPathScene(t *testing.T, flags ...string) *pathScene {
	t.Helper()
	c := newCluster(t, oneNode, flags...)
	n := c.Node(0)
	s := &pathScene{cluster: c, client: c.Pod(n, "client"), server: c.Pod(n, "server"), outside: c.External("outside"), flags: c.Agent(0).Flags}
	for _, v6 := range []bool{false, true} {
		service := netip.MustParseAddrPort(map[bool]string{false: "10.96.0.1:80", true: "[fd96::1]:80"}[v6])
		pod, nodePort := netip.AddrPortFrom(s.server.Addr(v6), 80), netip.AddrPortFrom(n.Addr(v6), 30080)
		for front, backend := range map[netip.AddrPort]netip.AddrPort{service: pod, nodePort: netip.AddrPortFrom(pod.Addr(), 8080)} {
			for _, protocol := range []string{"tcp", "udp"} {
				if err := n.SetService(lab.Service{Addr: front, Protocol: protocol, Backends: []netip.AddrPort{backend}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		c.Write(fmt.Sprintf("service-%v", v6), fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: server-%v, namespace: shop}\nspec: {clusterIP: \"%s\", clusterIPs: [\"%s\"], ports: [{port: 80}]}\n",
			v6, service.Addr(), service.Addr()))
		s.paths = append(s.paths,
			path{"pod to pod", s.client.Host, pod, s.server.Host, 80},
			path{"pod by a Service", s.client.Host, service, s.server.Host, 80},
			path{"pod to itself by a Service", s.server.Host, service, s.server.Host, 80},
			path{"pod to outside", s.client.Host, netip.AddrPortFrom(s.outside.Addr(v6), 80), s.outside.Host, 80},
			path{"pod to its node", s.client.Host, netip.AddrPortFrom(n.Addr(v6), 80), n.Host, 80},
			path{"node to pod", n.Host, pod, s.server.Host, 80},
			path{"node by a Service", n.Host, service, s.server.Host, 80},
			path{"outside to pod", s.outside.Host, pod, s.server.Host, 80},
			path{"outside by a node port", s.outside.Host, nodePort, s.server.Host, 8080})
	}
	s.allow()
	return s
}

// allow writes the policies by which all paths are open, and nothing else.
func (s *pathScene) allow() {
	s.T.Helper()
	block := func(h *lab.Host) string {
		return fmt.Sprintf(`{ipBlock: {cidr: "%v/32"}}, {ipBlock: {cidr: "%v/128"}}`, h.Addr4(), h.Addr6())
	}
	ports := func(port int) string { return fmt.Sprintf("[{port: %d}, {port: %d, protocol: UDP}]", port, port) }
	node := block(s.Node(0).Host)
	s.Policy("client", fmt.Sprintf(`{podSelector: {matchLabels: {app: client}}, policyTypes: [Ingress, Egress], egress: [
		{to: [{podSelector: {matchLabels: {app: server}}}, %s, %s], ports: %s}]}`, block(s.outside.Host), node, ports(80)))
	s.Policy("server", fmt.Sprintf(`{podSelector: {matchLabels: {app: server}}, policyTypes: [Ingress, Egress], ingress: [
		{from: [{podSelector: {matchLabels: {app: client}}}, %s], ports: %s}, {from: [%s], ports: %s}]}`, block(s.outside.Host), ports(80), node, ports(8080)))
	s.AwaitPolicies(s.client, 1, 1)
	s.AwaitPolicies(s.server, 1, 1)
}

// named returns the paths of both IP versions with a name.
func (s *pathScene) named(what string) (list []path) {
	return slices.DeleteFunc(slices.Clone(s.paths), func(p path) bool { return p.what != what })
}

// next kills the agent. The one that is started next has the flags of a mode.
func (s *pathScene) next(mode []string) {
	a := s.Agent(0)
	a.Kill()
	a.Flags = slices.Concat(s.flags, mode)
}

// switchTo has the agent come back in another mode, and says so.
func (s *pathScene) switchTo(mode []string) (when string) {
	s.T.Helper()
	s.next(mode)
	s.Agent(0).Start()
	return "in mode " + strings.Join(mode, " ")
}

// pair is the two ends of a connection.
type pair struct {
	what              string
	opener, responder *net.TCPConn
}

// listen starts a listener for the responder of a path.
func (s *pathScene) listen(p path) net.Listener {
	s.T.Helper()
	listens := net.ListenConfig{KeepAlive: -1}
	listens.SetMultipathTCP(false)
	var l net.Listener
	err := p.at.Do(func() (err error) {
		l, err = listens.Listen(context.Background(), "tcp", p.responder().String())
		return err
	})
	if err != nil {
		s.T.Fatal(err)
	}
	return l
}

// connect opens a connection over a path to a listener of it.
func (s *pathScene) connect(p path, l net.Listener) (pair, error) {
	d := net.Dialer{Timeout: soon, KeepAlive: -1} // the kernel would send in place of an idle end
	var ends [2]net.Conn
	err := p.from.Do(func() (err error) { ends[0], err = d.Dial("tcp", p.to.String()); return err })
	if err != nil {
		return pair{}, fmt.Errorf("%v: %w", p, err)
	}
	s.T.Cleanup(func() { _ = ends[0].Close() })
	if ends[1], err = l.Accept(); err != nil {
		return pair{}, fmt.Errorf("%v: %w", p, err)
	}
	s.T.Cleanup(func() { _ = ends[1].Close() })
	c := pair{p.String(), ends[0].(*net.TCPConn), ends[1].(*net.TCPConn)}
	s.hears(c.what+" at first", c.opener, c.responder)
	s.hears(c.what+" at first", c.responder, c.opener)
	return c, nil
}

// open opens a connection over a path.
func (s *pathScene) open(p path) pair {
	s.T.Helper()
	l := s.listen(p)
	defer l.Close()
	c, err := s.connect(p, l)
	if err != nil {
		s.T.Fatal(err)
	}
	return c
}

// hears demands that what one end sends comes to the other.
func (s *pathScene) hears(what string, from, to net.Conn) {
	s.T.Helper()
	text := []byte("still here")
	got := make([]byte, len(text))
	err := to.SetReadDeadline(time.Now().Add(10 * time.Second))
	if err == nil {
		_, err = from.Write(text)
	}
	if err == nil {
		_, err = io.ReadFull(to, got)
	}
	if err != nil {
		s.T.Errorf("%s: from %v to %v: %v", what, from.LocalAddr(), to.LocalAddr(), err)
	}
}

// TestTheAskedEndIsHeardFirstAfterASwitch: connections that are idle meanwhile, over all paths. In one of each two the end that was asked is the
// first to send after a switch.
func TestTheAskedEndIsHeardFirstAfterASwitch(t *testing.T) {
	s := newPathScene(t)
	var idle [][2]pair
	for _, p := range s.paths {
		idle = append(idle, [2]pair{s.open(p), s.open(p)})
	}
	for i := range switches(t) {
		when := s.switchTo(modes[i%len(modes)])
		var group sync.WaitGroup
		for _, two := range idle {
			group.Go(func() {
				s.hears(two[0].what+" "+when, two[0].responder, two[0].opener)
				s.hears(two[0].what+" "+when, two[0].opener, two[0].responder)
				s.hears(two[1].what+" "+when, two[1].opener, two[1].responder)
				s.hears(two[1].what+" "+when, two[1].responder, two[1].opener)
			})
		}
		group.Wait()
	}
}
