package controlplane

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/test/e2e/cluster/process"
)

// proxyConfig leaves connection tracking alone: its limits belong to the whole machine. Changes are applied at once.
const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %[1]s
hostnameOverride: %[2]s
clientConnection: {kubeconfig: %[3]s, qps: 100, burst: 200}
clusterCIDR: "%[4]s"
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
configSyncPeriod: 1m0s
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s, udpTimeout: 0s, udpStreamTimeout: 0s}
iptables: {minSyncPeriod: 50ms, syncPeriod: 1m0s}
nftables: {minSyncPeriod: 50ms, syncPeriod: 1m0s}
`

// StartKubeProxy starts kube-proxy on a node, in mode iptables or nftables, which takes away the other one's rules. The
// caller ends it; its rules go with the node. Sources outside of the pods' ranges, PodRanges by default, are masqueraded.
func (c *ControlPlane) StartKubeProxy(n *lab.Node, mode string, pods ...netip.Prefix) (*process.Process, error) {
	if pods == nil {
		pods = PodRanges
	}
	kubeconfig, err := c.Kubeconfig("system:kube-proxy")
	if err != nil {
		return nil, err
	}
	config := c.file("kube-proxy-" + n.Name() + ".yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, proxyConfig, mode, n.Name(), kubeconfig, list(pods)), 0o600); err != nil {
		return nil, fmt.Errorf("configure kube-proxy on %s: %w", n.Name(), err)
	}
	cmd := exec.Command(filepath.Join(c.opts.Bin, "kube-proxy"), "--config="+config)
	return process.Start(n.Host, c.file("kube-proxy-"+n.Name()+".log"), cmd)
}
