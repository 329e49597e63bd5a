package controlplane

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
)

const (
	etcd        = "etcd"
	apiServer   = "kube-apiserver"
	controllers = "kube-controller-manager"
	scheduler   = "kube-scheduler"

	etcdURL = "http://127.0.0.1:2379"
	apiPort = 6443
)

// StartEtcd starts etcd, with the data of an earlier one if there was, and waits until it serves.
func (c *ControlPlane) StartEtcd(ctx context.Context) error {
	peer := "http://127.0.0.1:2380"
	p, err := c.launch(etcd,
		"--name=test", "--data-dir="+c.file("etcd"), "--unsafe-no-fsync", "--quota-backend-bytes=8589934592",
		"--listen-client-urls="+etcdURL, "--advertise-client-urls="+etcdURL,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=test="+peer,
		"--heartbeat-interval=50", "--election-timeout=250", // alone, it elects itself: soon
		"--log-level=warn",
	)
	if err != nil {
		return err
	}
	return await(ctx, p, func(ctx context.Context) error { return c.get(ctx, etcdURL+"/readyz") })
}

// StopEtcd kills etcd; its data stay.
func (c *ControlPlane) StopEtcd() { c.kill(etcd) }

// StartAPIServer starts the API server and waits until it is ready.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error {
	p, err := c.launch(apiServer,
		"--etcd-servers="+etcdURL, "--storage-media-type=application/vnd.kubernetes.protobuf",
		"--bind-address=0.0.0.0", fmt.Sprintf("--secure-port=%d", apiPort), "--advertise-address="+c.opts.Host.Addr4().String(),
		"--tls-cert-file="+c.file("apiserver.crt"), "--tls-private-key-file="+c.file("apiserver.key"),
		"--client-ca-file="+c.file("ca.crt"), "--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file="+c.file("accounts.key"), "--service-account-signing-key-file="+c.file("accounts.key"),
		"--service-cluster-ip-range="+list(ServiceRanges), "--service-node-port-range=30000-32767",
		"--allow-privileged=true", "--profiling=false",
		// The stand-in for the kubelet says in its first words that the node is ready.
		"--disable-admission-plugins=TaintNodesByCondition",
		"--kubelet-preferred-address-types=InternalIP", // no name of a node is resolved
		"--max-requests-inflight=2000", "--max-mutating-requests-inflight=1000",
	)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		return fmt.Errorf("make a client of the API server: %w", err)
	}
	return await(ctx, p, func(ctx context.Context) error {
		return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// StopAPIServer kills the API server: its clients' connections are reset, and further ones refused.
func (c *ControlPlane) StopAPIServer() { c.kill(apiServer) }

func list(prefixes []netip.Prefix) string {
	var all []string
	for _, p := range prefixes {
		all = append(all, p.String())
	}
	return strings.Join(all, ",")
}

// StartControllerManager starts the controllers and waits until they serve.
func (c *ControlPlane) StartControllerManager(ctx context.Context) error {
	kubeconfig, err := c.Kubeconfig("system:kube-controller-manager")
	if err != nil {
		return err
	}
	p, err := c.launch(controllers,
		"--kubeconfig="+kubeconfig, "--leader-elect=false", "--use-service-account-credentials", "--bind-address=127.0.0.1", "--secure-port=10257",
		"--authorization-always-allow-paths=/healthz", "--profiling=false",
		"--root-ca-file="+c.file("ca.crt"), "--service-account-private-key-file="+c.file("accounts.key"),
		// Nodes stay as ready as they said: none of the tests is about the node life cycle.
		"--node-monitor-grace-period=24h",
		// Without volumes and clouds.
		"--controllers=*,-persistentvolume-attach-detach-controller,-persistentvolume-binder-controller,"+
			"-persistentvolume-expander-controller,-persistentvolumeclaim-protection-controller,"+
			"-persistentvolume-protection-controller,-ephemeral-volume-controller",
		"--kube-api-qps=500", "--kube-api-burst=1000", "--endpointslice-updates-batch-period=0s",
		"--concurrent-service-endpoint-syncs=5",
	)
	if err != nil {
		return err
	}
	return await(ctx, p, func(ctx context.Context) error { return c.get(ctx, "https://127.0.0.1:10257/healthz") })
}

// StopControllerManager kills the controllers.
func (c *ControlPlane) StopControllerManager() { c.kill(controllers) }

// StartScheduler starts the scheduler and waits until it serves.
func (c *ControlPlane) StartScheduler(ctx context.Context) error {
	kubeconfig, err := c.Kubeconfig("system:kube-scheduler")
	if err != nil {
		return err
	}
	p, err := c.launch(scheduler,
		"--kubeconfig="+kubeconfig, "--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=10259",
		"--authorization-always-allow-paths=/healthz", "--kube-api-qps=500", "--kube-api-burst=1000",
	)
	if err != nil {
		return err
	}
	return await(ctx, p, func(ctx context.Context) error { return c.get(ctx, "https://127.0.0.1:10259/healthz") })
}

// StopScheduler kills the scheduler.
func (c *ControlPlane) StopScheduler() { c.kill(scheduler) }

// dial connects inside the host's namespace.
func (c *ControlPlane) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	d := net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	err = c.opts.Host.Do(func() error { conn, err = d.DialContext(ctx, network, address); return err })
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// get asks a part that serves on the host's loopback interface whether it is well.
func (c *ControlPlane) get(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := c.local().Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, answer.Status)
	}
	return nil
}

// endpoint is where nodes and pods reach the API server.
func (c *ControlPlane) endpoint() netip.AddrPort {
	return netip.AddrPortFrom(c.opts.Host.Addr4(), apiPort)
}
