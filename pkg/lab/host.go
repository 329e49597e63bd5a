package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/margay-project/margay/pkg/lab/ns"
)

// Host is a network namespace with addresses, links and what was opened in it: the base of Node, Pod and External. It runs
// commands and functions as any program there would. Servers and their clients are package echo's, what tests and
// benchmarks alone send is in internal/traffic.
type Host struct {
	name    string
	addrs   []netip.Addr
	space   *ns.NS
	links   *links
	sockets *sockets
}

// settings of every namespace. Duplicate address detection would hold IPv6 addresses back for a second; redirects and
// router advertisements would change routes behind the lab's back. Short-lived client ports must not run out.
var settings = []string{
	"net/ipv4/conf/all/rp_filter=0", // no reverse-path filter: spoofed packets are the policy engine's to drop
	"net/ipv4/conf/default/rp_filter=0",
	"net/ipv4/conf/all/send_redirects=0",
	"net/ipv4/conf/default/send_redirects=0",
	"net/ipv4/conf/all/accept_redirects=0",
	"net/ipv4/conf/default/accept_redirects=0",
	"net/ipv4/ip_local_port_range=10000 65535",
	"net/ipv4/ping_group_range=0 2147483647",
	"net/ipv4/tcp_tw_reuse=1",
	"net/ipv6/conf/all/disable_ipv6=0",
	"net/ipv6/conf/default/disable_ipv6=0",
	"net/ipv6/conf/default/accept_dad=0",
	"net/ipv6/conf/default/accept_ra=0",
	"net/ipv6/conf/default/accept_redirects=0",
}

// newHost makes a namespace with loopback up. On error nothing is left.
func newHost(name, space string, addrs []netip.Addr) (*Host, error) {
	made, err := ns.Create(space)
	if err != nil {
		return nil, fmt.Errorf("make host %s: %w", name, err)
	}
	h := &Host{name: name, addrs: slices.Clone(addrs), space: made, sockets: newSockets(name)}
	if h.links, err = openLinks(name, made); err != nil {
		return nil, errors.Join(err, made.Close())
	}
	if err := h.sysctl(settings...); err != nil {
		return nil, errors.Join(err, h.sockets.close(), h.remove())
	}
	if _, err := h.links.up("lo"); err != nil {
		return nil, errors.Join(err, h.sockets.close(), h.remove())
	}
	return h, nil
}

// Name is what the host was called: a node's or outside host's name, or a pod's namespace/name.
func (h *Host) Name() string { return h.name }

// Namespace is the name of its network namespace, as ip netns shows it.
func (h *Host) Namespace() string { return h.space.Name() }

// NamespacePath is the file under /run/netns that setns and nsenter take.
func (h *Host) NamespacePath() string { return h.space.Path() }

// Addrs returns its addresses in the order given.
func (h *Host) Addrs() []netip.Addr { return slices.Clone(h.addrs) }

// Addr is its first address of the family; the zero Addr if it has none.
func (h *Host) Addr(v6 bool) netip.Addr {
	for _, a := range h.addrs {
		if a.Is6() == v6 {
			return a
		}
	}
	return netip.Addr{}
}

// Addr4 is its first IPv4 address; the zero Addr if it has none.
func (h *Host) Addr4() netip.Addr { return h.Addr(false) }

// Addr6 is its first IPv6 address; the zero Addr if it has none.
func (h *Host) Addr6() netip.Addr { return h.Addr(true) }

// Netlink is a handle that works inside the namespace from any goroutine. The host owns it.
func (h *Host) Netlink() *netlink.Handle { return h.links.handle }

// Do runs fn inside the namespace on the calling goroutine: see ns.NS.Do.
func (h *Host) Do(fn func() error) error { return h.space.Do(fn) }

// Start starts a command inside the namespace; the rest of cmd's life is the caller's.
func (h *Host) Start(cmd *exec.Cmd) error {
	if err := h.Do(cmd.Start); err != nil {
		return fmt.Errorf("start %s in %s: %w", cmd.Path, h.name, err)
	}
	return nil
}

// Run runs a command to its end inside the namespace and returns its standard output. Its standard error is part of the
// error. Input may be empty.
func (h *Host) Run(ctx context.Context, input, command string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, command, args...)
	var out, diagnostics bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &diagnostics
	err := h.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return out.String(), fmt.Errorf("run %s %s in %s: %w: %s", command, strings.Join(args, " "), h.name, err,
			strings.TrimSpace(diagnostics.String()))
	}
	return out.String(), nil
}

// Adopt makes Lab.Close, and the removal of the host, close c, too. If the host is closed by now, Adopt closes c and fails.
func (h *Host) Adopt(c io.Closer) error { return h.sockets.add(c) }

// Release leaves c to its owner, who closes it.
func (h *Host) Release(c io.Closer) { h.sockets.forget(c) }

// sysctl sets "path/below/proc/sys=value" inside the namespace.
func (h *Host) sysctl(assignments ...string) error {
	return h.Do(func() error {
		for _, a := range assignments {
			key, value, _ := strings.Cut(a, "=")
			if err := os.WriteFile(filepath.Join("/proc/sys", key), []byte(value), 0); err != nil {
				return fmt.Errorf("set sysctl %s in %s: %w", a, h.space.Name(), err)
			}
		}
		return nil
	})
}

func (h *Host) remove() error {
	h.links.handle.Close()
	return h.space.Close()
}
