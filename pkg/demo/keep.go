package demo

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/inspect"
)

// keep leaves the scene up and says how to look around, until ctx or the agent ends. That the agent ended is the error.
func (r *runner) keep(ctx context.Context) error {
	lines, err := r.hints(ctx)
	if err != nil {
		return err
	}
	r.print("\n== The demo keeps running until Ctrl-C. Commands to try in another terminal:\n   %s", strings.Join(lines, "\n   "))
	select {
	case <-ctx.Done():
		return nil
	case err := <-r.agent.done:
		r.agent.done <- nil // for stop, which has nothing to do any more
		if ctx.Err() != nil {
			return nil // by the same Ctrl-C
		}
		return fmt.Errorf("the agent ended (%s), so nothing follows the manifests any more; its log:\n%s", ending(err), r.agent.tail())
	}
}

func ending(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// hints returns commands for looking around in the present cluster.
func (r *runner) hints(ctx context.Context) ([]string, error) {
	answer, err := r.agent.ask(ctx, "/v1/endpoints", nil)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(answer.Endpoints, func(e inspect.EndpointRow) bool { return e.Namespace == "shop" && e.Name == "db" })
	if at < 0 {
		return nil, errors.New("the agent has no endpoint shop/db")
	}
	status, err := r.agent.ask(ctx, "/v1/status", nil)
	if err != nil {
		return nil, err
	}
	kernel := r.mapHints(answer.Endpoints[at])
	if name := status.Status.Dataplane; strings.HasPrefix(name, "iptables") {
		kernel = r.chainHints(name + "-save")
	}
	return slices.Concat([]string{
		fmt.Sprintf("export MARGAY_INSTANCE=%s MARGAY_SOCKET=%s    (which agent to ask)", r.agent.instance, r.agent.socket),
		r.agent.binary + " show endpoints",
		r.agent.binary + " show rules shop/db",
		r.agent.binary + " explain dev/box shop/api",
		r.agent.binary + " explain ops/admin svc/api -n shop",
		r.agent.binary + " monitor",
	}, kernel, []string{
		"nsenter --net=" + r.hosts["shop/web"].NamespacePath() + " ip address",
		"edit " + r.dir + "/shop.yaml and watch",
		"agent log: " + r.agent.log,
	}), nil
}

// chainHints are commands that show what the iptables dataplane has in the kernel. save is the command of the backend: that of the other one
// shows nothing.
func (r *runner) chainHints(save string) []string {
	enter := "nsenter --net=" + r.node.NamespacePath() + " "
	return []string{
		enter + save + " -c    (chains, with what their rules have counted)",
		enter + "ipset list",
		enter + r.agent.binary + " show flows",
	}
}

// mapHints are commands that show what the BPF dataplane has in the kernel.
func (r *runner) mapHints(db inspect.EndpointRow) []string {
	key := binary.NativeEndian.AppendUint32(nil, db.Ifindex)
	pin := filepath.Join(bpfmaps.InstanceDir(dataplane.Defaults().BPFFS, r.agent.instance), "v"+strconv.Itoa(bpfmaps.Layout))
	return []string{
		"bpftool map dump pinned " + pin + "/ip4_host",
		fmt.Sprintf("bpftool map lookup pinned %s/endpoints key %d %d %d %d    (shop/db, by its ifindex)", pin, key[0], key[1], key[2], key[3]),
		fmt.Sprintf("bpftool map dump pinned %s/slot/%d/rules    (ingress of shop/db; other slots: show endpoints -o json)", pin, db.Ingress.Slot),
	}
}
