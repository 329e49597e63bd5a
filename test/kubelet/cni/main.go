// Command cni is a CNI plugin that connects pods as Calico's does: a veth pair whose name on the node follows from the pod's, a route to each
// address alone, and a gateway that is the node itself. The configuration names the prefixes that addresses come from.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/lab"
)

// config is what the plugin's file in the runtime's directory says.
type config struct {
	types.NetConf
	Prefixes []netip.Prefix `json:"prefixes"`
	State    string         `json:"state"` // directory with a file for each container
}

// names are the pod's, as the runtime says them.
type names struct {
	types.CommonArgs
	// LoadArgs finds fields by their names, which are those of the runtime.
	K8S_POD_NAMESPACE types.UnmarshallableString
	K8S_POD_NAME      types.UnmarshallableString
}

var (
	gateway4 = netip.MustParseAddr("169.254.1.1")
	gateway6 = netip.MustParseAddr("fe80::ecee:eeff:feee:eeee")
)

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Del: del, Check: func(*skel.CmdArgs) error { return nil }}, version.All, "margay's test plugin")
}

func load(args *skel.CmdArgs) (c config, iface string, err error) {
	if err = json.Unmarshal(args.StdinData, &c); err != nil {
		return c, "", fmt.Errorf("read the configuration: %w", err)
	}
	n := names{CommonArgs: types.CommonArgs{IgnoreUnknown: true}}
	if err = types.LoadArgs(args.Args, &n); err != nil {
		return c, "", fmt.Errorf("read the pod's name from %q: %w", args.Args, err)
	}
	return c, lab.IfaceName(string(n.K8S_POD_NAMESPACE), string(n.K8S_POD_NAME)), nil
}

func add(args *skel.CmdArgs) error {
	c, iface, err := load(args)
	if err != nil {
		return err
	}
	addrs, err := c.allocate(args.ContainerID)
	if err != nil {
		return err
	}
	inside, err := netns.GetFromPath(args.Netns)
	if err != nil {
		return fmt.Errorf("open the pod's network namespace %s: %w", args.Netns, err)
	}
	defer inside.Close()
	if err := connect(inside, args.IfName, iface, addrs); err != nil {
		return err
	}
	result := &current.Result{CNIVersion: current.ImplementedSpecVersion}
	result.Interfaces = []*current.Interface{{Name: iface}, {Name: args.IfName, Sandbox: args.Netns}}
	one := 1
	for _, a := range addrs {
		result.IPs = append(result.IPs, &current.IPConfig{Interface: &one, Address: *ipNet(netip.PrefixFrom(a, a.BitLen()))})
	}
	return types.PrintResult(result, c.CNIVersion)
}

func del(args *skel.CmdArgs) error {
	c, iface, err := load(args)
	if err != nil {
		return err
	}
	link, err := netlink.LinkByName(iface)
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil && !errors.As(err, &netlink.LinkNotFoundError{}) {
		return fmt.Errorf("remove %s: %w", iface, err)
	}
	if err := os.Remove(filepath.Join(c.State, args.ContainerID)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("release the addresses of %s: %w", args.ContainerID, err)
	}
	return nil
}

// allocate gives the container the first number that no other has, in all prefixes.
func (c config) allocate(container string) (addrs []netip.Addr, err error) {
	lock, err := os.Open(c.State)
	if err != nil {
		return nil, fmt.Errorf("open the directory of addresses: %w", err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("lock %s: %w", c.State, err)
	}
	files, err := os.ReadDir(c.State)
	if err != nil {
		return nil, fmt.Errorf("list the addresses in use: %w", err)
	}
	used := map[string]bool{}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(c.State, f.Name()))
		if err != nil {
			return nil, fmt.Errorf("read the number of %s: %w", f.Name(), err)
		}
		used[strings.TrimSpace(string(text))] = true
	}
	for n := byte(2); n < 250; n++ {
		if used[fmt.Sprint(n)] {
			continue
		}
		for _, p := range c.Prefixes {
			b := p.Addr().AsSlice()
			b[len(b)-1] = n
			a, _ := netip.AddrFromSlice(b) // of 4 or 16 bytes
			addrs = append(addrs, a)
		}
		return addrs, os.WriteFile(filepath.Join(c.State, container), []byte(fmt.Sprint(n)), 0o600)
	}
	return nil, errors.New("no address is free")
}
