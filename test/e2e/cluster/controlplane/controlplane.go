// Package controlplane runs a real Kubernetes control plane, etcd included, as processes on an outside host of the lab,
// and kube-proxy on its nodes. Each part can be stopped and started by itself, which is what outages are made of.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/test/e2e/cluster/process"
)

// ServiceRanges are what cluster IPs come from.
var ServiceRanges = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd96::/112")}

// PodRanges are what pods' addresses come from.
var PodRanges = []netip.Prefix{netip.MustParsePrefix("10.70.0.0/16"), netip.MustParsePrefix("fd70::/32")}

// NodePods are the parts of PodRanges for the pods of node i of 1 to 15: more than the lab gives to a node.
func NodePods(i int) []netip.Prefix {
	return []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 70, byte(i << 4), 0}), 20),
		netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0x70, 7: byte(i)}), 64),
	}
}

// Binaries are the commands that have to be in Options.Bin.
var Binaries = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl"}

// startLimit bounds the start of one part, on a machine that does other work too.
const startLimit = 60 * time.Second

// Options say where a control plane runs.
type Options struct {
	Bin  string        // directory of Binaries
	Host *lab.External // where it runs: the API server answers on its IPv4 address
	Dir  string        // for keys, data and logs; the caller removes it
}

// ControlPlane is a running control plane. The processes are gone after Stop, and at the latest with the process that
// started them. Its methods are safe for concurrent use.
type ControlPlane struct {
	opts    Options
	ca      *authority
	admin   *rest.Config
	written atomic.Uint64 // kubeconfigs

	mu    sync.Mutex
	parts map[string]*process.Process // by command; nil or missing: stopped
}

// Start starts everything and returns when the API server is ready and has what it makes at first, and the controllers
// run. On error nothing is left running.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	c := &ControlPlane{opts: o, parts: map[string]*process.Process{}}
	if err := c.prepare(); err != nil {
		return nil, fmt.Errorf("prepare the control plane: %w", err)
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *ControlPlane) start(ctx context.Context) error {
	// One after the other: a client that finds nothing at first waits for a second before it tries again.
	if err := c.StartEtcd(ctx); err != nil {
		return err
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	g, running := errgroup.WithContext(ctx)
	g.Go(func() error { return c.StartControllerManager(running) })
	g.Go(func() error { return c.StartScheduler(running) })
	return g.Wait()
}

// prepare makes keys, certificates and kubeconfigs.
func (c *ControlPlane) prepare() (err error) {
	if c.ca, err = newAuthority(); err != nil {
		return err
	}
	names := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	addrs := append(c.opts.Host.Addrs(), netip.MustParseAddr("127.0.0.1"))
	for _, p := range ServiceRanges {
		addrs = append(addrs, p.Addr().Next())
	}
	serving, err := c.ca.server(addrs, names...)
	if err != nil {
		return err
	}
	_, accounts, err := newKey()
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"ca.crt": c.ca.pem, "apiserver.crt": serving.cert, "apiserver.key": serving.key, "accounts.key": accounts,
	} {
		if err := os.WriteFile(c.file(name), content, 0o600); err != nil {
			return err
		}
	}
	admin, err := c.ca.client("admin", "system:masters")
	if err != nil {
		return err
	}
	c.admin = c.config(admin)
	return nil
}

func (c *ControlPlane) file(name string) string { return filepath.Join(c.opts.Dir, name) }

// launch starts a command on the host.
func (c *ControlPlane) launch(name string, flags ...string) (*process.Process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.parts[name]; p != nil {
		select {
		case <-p.Done():
		default:
			return nil, fmt.Errorf("start %s: it runs", name)
		}
	}
	cmd := exec.Command(filepath.Join(c.opts.Bin, name), flags...)
	p, err := process.Start(c.opts.Host.Host, c.file(name+".log"), cmd)
	if err != nil {
		return nil, err
	}
	c.parts[name] = p
	return p, nil
}

// kill ends a part, if it runs, by SIGKILL: connections to it are reset at once.
func (c *ControlPlane) kill(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parts[name].Kill()
	delete(c.parts, name)
}

// Process is the part of that name as it runs now; nil if it is stopped.
func (c *ControlPlane) Process(name string) *process.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parts[name]
}

// Err tells of parts that ended by themselves; nil if none did.
func (c *ControlPlane) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for name, p := range c.parts {
		select {
		case <-p.Done():
			errs = append(errs, fmt.Errorf("%s ended by itself: %w\n%s", name, p.Err(), p.Tail(5)))
		default:
		}
	}
	return errors.Join(errs...)
}

// Stop ends all parts, those that use others first.
func (c *ControlPlane) Stop() error {
	err := c.Err()
	for _, name := range []string{scheduler, controllers, apiServer, etcd} {
		c.kill(name)
	}
	return err
}

// await polls until ready says so, the process ends, or the limit is over.
func await(ctx context.Context, p *process.Process, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.Done():
			return fmt.Errorf("%s ended while it started: %w\n%s", p.Name(), p.Err(), p.Tail(20))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w\n%s", p.Name(), err, p.Tail(20))
		case <-again.C:
		}
	}
}
