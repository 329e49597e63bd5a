// Package demo is `margay demo`: a node and pods in network namespaces, real servers, the real agent, and every pair
// and port tried. The expected results are written down here by hand, not computed by any part of Margay.
package demo

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/margay-project/margay/demo"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// port is something every pod serves.
type port struct {
	number   uint16
	protocol string
}

func (p port) String() string { return fmt.Sprintf("%d/%s", p.number, p.protocol) }

var ports = []port{{80, "tcp"}, {8080, "tcp"}, {5432, "tcp"}, {53, "udp"}}

// podSpec is one pod of the scene.
type podSpec struct {
	namespace, name, app string
}

var pods = []podSpec{
	{"shop", "web", "web"}, {"shop", "api", "api"}, {"shop", "db", "db"},
	{"ops", "dns", "dns"}, {"ops", "admin", "admin"}, {"dev", "box", "box"},
}

const outside = "internet"

// egressAllowed and ingressAllowed say what the manifests in demo/ mean, read by a person. The shop's pods are isolated
// both ways; no other pair is.
func egressAllowed(src, dst string, p port) bool {
	if !strings.HasPrefix(src, "shop/") {
		return true
	}
	switch {
	case dst == "ops/dns" && p == port{53, "udp"}:
		return true
	case src == "shop/web" && dst == "shop/api":
		return p == port{8080, "tcp"}
	case src == "shop/api" && dst == "shop/db":
		return p == port{5432, "tcp"}
	}
	return false
}

func ingressAllowed(src, dst string, p port) bool {
	ops := strings.HasPrefix(src, "ops/")
	switch dst {
	case "shop/web":
		return (src == outside || ops) && p == port{80, "tcp"}
	case "shop/api":
		return src == "shop/web" && p == port{8080, "tcp"}
	case "shop/db":
		return (src == "shop/api" || ops) && p == port{5432, "tcp"}
	}
	return true
}

// Service addresses of the scene, translated by iptables rules as kube-proxy would.
var (
	apiService = netip.MustParseAddrPort("10.96.0.10:8080")
	dnsService = netip.MustParseAddrPort("10.96.0.53:53")
)

// scene is the cluster.
type scene struct {
	lab   *lab.Lab
	node  *lab.Node
	hosts map[string]*lab.Host // pods by namespace/name, and outside
	order []string
}

// build makes the cluster and starts the servers. On an error the caller still closes the parts that were made.
func build(s *scene) error {
	var err error
	if s.lab, err = lab.New(); err != nil {
		return err
	}
	if s.node, err = s.lab.AddNode("node"); err != nil {
		return err
	}
	s.hosts = map[string]*lab.Host{}
	for _, p := range pods {
		pod, err := s.node.AddPod(p.namespace, p.name)
		if err != nil {
			return err
		}
		if err := s.serve(p.namespace+"/"+p.name, pod.Host); err != nil {
			return err
		}
	}
	internet, err := s.lab.AddExternal(outside)
	if err != nil {
		return err
	}
	s.hosts[outside] = internet.Host
	s.order = append(s.order, outside)
	return s.services()
}

func (s *scene) serve(name string, h *lab.Host) error {
	s.hosts[name] = h
	s.order = append(s.order, name)
	for _, p := range ports {
		listen := echo.ListenTCP
		if p.protocol == "udp" {
			listen = echo.ListenUDP
		}
		if _, err := listen(h, p.number); err != nil {
			return err
		}
	}
	return nil
}

func (s *scene) services() error {
	return firstError(
		s.node.SetService(lab.Service{Addr: apiService, Protocol: "tcp",
			Backends: []netip.AddrPort{netip.AddrPortFrom(s.hosts["shop/api"].Addr4(), 8080)}}),
		s.node.SetService(lab.Service{Addr: dnsService, Protocol: "udp",
			Backends: []netip.AddrPort{netip.AddrPortFrom(s.hosts["ops/dns"].Addr4(), 53)}}),
	)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// writeManifests fills the directory the agent reads: the policies of demo/, and the pods with the addresses they got.
func (s *scene) writeManifests(dir string) error {
	var b strings.Builder
	for _, p := range pods {
		h := s.hosts[p.namespace+"/"+p.name]
		fmt.Fprintf(&b, `---
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s, labels: {app: %s}}
spec:
  nodeName: node
  containers: [{name: main, image: demo, ports: [{name: http, containerPort: 80}]}]
status:
  podIPs: [{ip: %q}, {ip: %q}]
`, p.name, p.namespace, p.app, h.Addr4(), h.Addr6())
	}
	writeService(&b, "shop", "api", apiService, "TCP", s.hosts["shop/api"].Addr4())
	writeService(&b, "ops", "dns", dnsService, "UDP", s.hosts["ops/dns"].Addr4())
	fmt.Fprintf(&b, `---
apiVersion: v1
kind: Node
metadata: {name: node}
status: {addresses: [{type: InternalIP, address: %q}, {type: InternalIP, address: %q}]}
`, s.node.Addr4(), s.node.Addr6())
	return firstError(
		replaceFile(filepath.Join(dir, "pods.yaml"), []byte(b.String())),
		replaceFile(filepath.Join(dir, "shop.yaml"), demo.Shop),
	)
}

// writeService writes a Service and its only backend, which has the same port.
func writeService(b *strings.Builder, namespace, name string, addr netip.AddrPort, protocol string, backend netip.Addr) {
	fmt.Fprintf(b, `---
apiVersion: v1
kind: Service
metadata: {name: %[2]s, namespace: %[1]s}
spec: {clusterIP: %[3]s, ports: [{port: %[4]d, protocol: %[5]s}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[2]s, namespace: %[1]s, labels: {kubernetes.io/service-name: %[2]s}}
addressType: IPv4
ports: [{name: "", port: %[4]d, protocol: %[5]s}]
endpoints: [{addresses: [%[6]q]}]
`, namespace, name, addr.Addr(), addr.Port(), protocol, backend)
}

// replaceFile writes a file whole: readers see the old one or the new one.
func replaceFile(path string, data []byte) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, data, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
