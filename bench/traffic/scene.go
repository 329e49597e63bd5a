//go:build linux

package traffic

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// Options of a run.
type Options struct {
	Margay string // the agent's binary
	Work   string // directory for manifests, logs and sockets
	Core   int    // the core everything that is measured runs on
	Nodes  int    // that each configuration is set up on; rounds take turns
	Rounds int
	// Ops are operations in one round.
	UDPOps, RequestOps, ConnectOps int
	Rules, SetRules                []int // rule counts, ascending
	Few                            bool  // leave out combinations of what is measured apart
	Log                            func(format string, args ...any)
}

// config is one node and what is done to the packets of its two pods.
type config struct {
	name  string
	share int // one round has 1/share of the operations: of what is very slow
	// setUp makes the node enforce; tearDown undoes what outlives the node's namespace, and may be nil.
	setUp    func(ctx context.Context, s *site) error
	verify   func(s *site) error // after the flows are open; may be nil
	tearDown func(s *site) error
	denies   bool // what no rule allows must not get through
	shortcut bool // packets must go past the host's stack; else none may
	apart    bool // client and server are on two nodes
}

// seat is a node of a site and the agent on it, which is nil if nothing of Margay runs there.
type seat struct {
	node  *lab.Node
	agent *agent
}

// site is a config that has been set up.
type site struct {
	config
	o     Options
	seats [2]*seat // the client's and the server's; the same one unless they are apart
	done  int      // operations so far
	*pair
}

// each calls do once for each node of the site.
func (s *site) each(do func(*seat) error) error {
	if s.seats[0] == s.seats[1] {
		return do(s.seats[0])
	}
	return errors.Join(do(s.seats[0]), do(s.seats[1]))
}

// scene is all sites.
type scene struct {
	lab   *lab.Lab
	sites []*site
}

func newScene(ctx context.Context, o Options, configs []config) (*scene, error) {
	l, err := lab.New()
	if err != nil {
		return nil, err
	}
	s := &scene{lab: l}
	for i := range o.Nodes {
		for k, c := range configs {
			site := &site{config: c, o: o}
			s.sites = append(s.sites, site)
			if err := site.build(ctx, l, fmt.Sprintf("n%d", i*len(configs)+k)); err != nil {
				return nil, errors.Join(fmt.Errorf("set up %s: %w", c.name, err), s.Close())
			}
		}
	}
	return s, nil
}

func (s *site) build(ctx context.Context, l *lab.Lab, name string) error {
	if err := s.addNodes(l, name); err != nil {
		return err
	}
	client, err := s.seats[0].node.AddPod("bench", "client")
	if err != nil {
		return err
	}
	server, err := s.seats[1].node.AddPod("bench", "server")
	if err != nil {
		return err
	}
	if _, err := echo.ListenTCP(server.Host, deniedPort); err != nil {
		return err
	}
	s.pair = &pair{client: client, server: server}
	if s.setUp != nil {
		if err := s.setUp(ctx, s); err != nil {
			return err
		}
	}
	if err := s.each(func(at *seat) error { return at.node.Do(setTimeouts) }); err != nil {
		return err
	}
	if s.pair, err = connectPair(client, server); err != nil {
		return err
	}
	return s.checkDenied()
}

// setTimeouts has the kernel's conntrack, where there is one, forget connections that have ended after a second and not after two
// minutes: else its table, which all nodes share, would fill with those of earlier rounds. It keeps the flow of datagrams for an hour:
// checks look for it after the other workloads, too.
func setTimeouts() error {
	for timeout, seconds := range map[string]string{"tcp_timeout_time_wait": "1", "udp_timeout": "3600", "udp_timeout_stream": "3600"} {
		err := os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_"+timeout, []byte(seconds), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (s *site) addNodes(l *lab.Lab, name string) error {
	for i := range s.seats {
		if i == 1 && !s.apart {
			s.seats[1] = s.seats[0]
			break
		}
		n, err := l.AddNode(fmt.Sprintf("%s%c", name, 'a'+i))
		if err != nil {
			return err
		}
		s.seats[i] = &seat{node: n}
	}
	return nil
}

// checkDenied tries a port that no rule speaks of.
func (s *site) checkDenied() error {
	want, limit := echo.Connected, 2*time.Second
	if s.denies {
		want, limit = echo.Timeout, 100*time.Millisecond
	}
	attempt := echo.DialTCP(s.client.Host, netip.AddrPortFrom(s.server.Addr4(), deniedPort), limit)
	if attempt.Outcome != want {
		return fmt.Errorf("port %d, which no rule allows: %s, want %s (%v)", deniedPort, attempt.Outcome, want, attempt.Err)
	}
	return nil
}

// Close removes everything, going on when a step fails.
func (s *scene) Close() error {
	var errs []error
	for _, site := range s.sites {
		if site.pair != nil {
			errs = append(errs, site.pair.close())
		}
		if site.tearDown != nil {
			errs = append(errs, site.tearDown(site))
		}
	}
	return errors.Join(append(errs, s.lab.Close())...)
}
