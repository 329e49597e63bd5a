package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/margay-project/margay/demo"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// Options of a demonstration.
type Options struct {
	Keep bool // stay up until ctx ends
	Out  io.Writer
}

// Run shows Margay at work and returns how many checks it made and how many went wrong. Everything it makes is gone
// when it returns.
func Run(ctx context.Context, o Options) (checks, wrong int, err error) {
	left, err := Sweep()
	if err != nil {
		return 0, 0, fmt.Errorf("remove what an earlier demo left: %w", err)
	}
	if len(left) > 0 {
		fmt.Fprintf(o.Out, "Removed what an earlier demo left when it was killed (%d things).\n", len(left))
	}
	work, err := os.MkdirTemp("", workPrefix)
	if err != nil {
		return 0, 0, err
	}
	r := &runner{scene: &scene{}, out: o.Out, work: work, dir: filepath.Join(work, "manifests")}
	defer func() { err = errors.Join(err, r.close()) }()
	owner, err := own(work)
	if err != nil {
		return 0, 0, err
	}
	defer owner.Close()
	if err := r.prepare(ctx); err != nil {
		return 0, 0, err
	}
	if err := r.show(ctx); err != nil {
		return r.checks, r.wrong, err
	}
	if o.Keep {
		err = r.keep(ctx)
	}
	return r.checks, r.wrong, err
}

type runner struct {
	*scene
	out           io.Writer
	work, dir     string
	agent         *process
	checks, wrong int
}

func (r *runner) print(format string, args ...any) { fmt.Fprintf(r.out, format+"\n", args...) }

func (r *runner) prepare(ctx context.Context) error {
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		return err
	}
	r.print("== A node with %d pods in network namespaces, a machine outside, and the agent", len(pods))
	if err := build(r.scene); err != nil {
		return err
	}
	if err := r.writeManifests(r.dir); err != nil {
		return err
	}
	began := time.Now()
	var err error
	if r.agent, err = start(r.node, r.lab.ID(), r.dir, r.work); err != nil {
		return err
	}
	if err := r.agent.await(ctx, len(pods)); err != nil {
		return err
	}
	status, err := r.agent.ask(ctx, "/v1/status", nil)
	if err != nil {
		return err
	}
	r.print("   margay run enforces the manifests in demo/ after %s, with %s", time.Since(began).Round(time.Millisecond), status.Status.Dataplane)
	return nil
}

func (r *runner) show(ctx context.Context) error {
	r.print("\n== Every pair, every port, both families: what the policies mean against what happens")
	list := r.matrix()
	r.try(list)
	r.printMatrix(r.out, list)
	r.count(list)

	r.print("\n== Through Service addresses: policy judges the backend")
	services := serviceChecks()
	r.try(services)
	for _, c := range services {
		r.print("   %-9s -> %-12s %-18s %s", c.src, c.dst, c.addr, word(c.allowed()))
	}
	r.count(services)
	if err := r.revoke(ctx); err != nil {
		return err
	}
	return r.explain(ctx)
}

func (r *runner) count(list []*check) {
	r.checks += len(list)
	r.wrong += printWrong(r.out, list)
}

// cause is the innermost error: the outer ones name ends that the demo has named before.
func cause(err error) error {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err
}

func (r *runner) expect(what string, ok bool) {
	r.checks++
	mark := "ok"
	if !ok {
		r.wrong++
		mark = "WRONG"
	}
	r.print("   %-62s %s", what, mark)
}

// revoke takes a permission away under live connections.
func (r *runner) revoke(ctx context.Context) error {
	r.print("\n== A policy changes under live connections")
	db := netip.AddrPortFrom(r.hosts["shop/db"].Addr4(), 5432)
	admin, err := echo.StartStream(r.hosts["ops/admin"], db, echo.StreamOptions{Timeout: 2 * time.Second})
	if err != nil {
		return err
	}
	api, err := echo.StartStream(r.hosts["shop/api"], db, echo.StreamOptions{Timeout: 2 * time.Second})
	if err != nil {
		return err
	}
	r.print("   ops/admin and shop/api each hold a connection to shop/db; now ops loses its permission")
	rule := []byte(", {namespaceSelector: {matchLabels: {team: ops}}}]\n      ports: [{protocol: TCP, port: 5432}]")
	changed := bytes.Replace(demo.Shop, rule, []byte("]\n      ports: [{protocol: TCP, port: 5432}]"), 1)
	if bytes.Equal(changed, demo.Shop) {
		return errors.New("demo/shop.yaml has no rule to take away")
	}
	began := time.Now()
	if err := replaceFile(filepath.Join(r.dir, "shop.yaml"), changed); err != nil {
		return err
	}
	cut := r.awaitError(ctx, admin)
	took := time.Since(began).Round(time.Millisecond)
	a, b := admin.Stop(), api.Stop()
	r.expect(fmt.Sprintf("ops/admin's connection was cut after %s: %v", took, cause(a.LastErr)), cut && a.Errors > 0)
	r.expect(fmt.Sprintf("shop/api's connection lives: %d requests, %d answers", b.Sent, b.Received),
		b.Errors == 0 && b.Connects == 1 && b.Sent == b.Received)
	again := &check{src: "ops/admin", dst: "shop/db", addr: db, port: port{5432, "tcp"}}
	r.try([]*check{again})
	r.expect("ops/admin cannot connect again", !again.wrong())
	return nil
}

// awaitError waits until the stream's connection has failed.
func (r *runner) awaitError(ctx context.Context, s *echo.Stream) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for s.Result().Errors == 0 {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

func (r *runner) explain(ctx context.Context) error {
	r.print("\n== Why? margay explain ops/admin shop/db:5432/tcp")
	request, err := explain.ParseRequest("ops/admin", "shop/db:5432/tcp")
	if err != nil {
		return err
	}
	parameters, err := inspect.ExplainParameters(request)
	if err != nil {
		return err
	}
	answer, err := r.agent.ask(ctx, "/v1/explain", parameters)
	if err != nil {
		return err
	}
	if answer.Explanation == nil {
		return fmt.Errorf("explain: %s", answer.Error)
	}
	e := answer.Explanation
	r.print("   %s", e.Packet)
	r.print("   egress of %s: %s", e.Src, e.Egress)
	r.print("   ingress of %s: %s", e.Dst, e.Ingress)
	r.expect("explain says deny, by NetworkPolicy shop/db", e.Verdict == "deny" &&
		e.Ingress.Kind == "NetworkPolicy" && e.Ingress.Namespace == "shop" && e.Ingress.Rule == "end-of-tier")
	return nil
}

// close removes everything, going on when a step fails.
func (r *runner) close() error {
	var errs []error
	if r.agent != nil {
		errs = append(errs, r.agent.stop(), os.RemoveAll(bpfmaps.InstanceDir(dataplane.Defaults().BPFFS, r.agent.instance)))
	}
	if r.lab != nil {
		errs = append(errs, r.lab.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(r.work))...)
}
