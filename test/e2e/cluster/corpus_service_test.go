package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/margay-project/margay/internal/corpus"
	"github.com/margay-project/margay/pkg/lab/echo"
	"github.com/margay-project/margay/pkg/model"
)

// stagedService is the Service of one pod, by which checks reach it.
type stagedService struct {
	ports []servicePort
	addrs []netip.Addr
}

type servicePort struct {
	protocol uint8
	port     uint16
}

func (p servicePort) String() string {
	if p.protocol == model.ProtoUDP {
		return fmt.Sprintf("{name: udp-%[1]d, port: %[1]d, protocol: UDP}", p.port)
	}
	return fmt.Sprintf("{name: tcp-%[1]d, port: %[1]d}", p.port)
}

// placeServices gives each pod that serves a Service of the ports that checks of it are about, and waits until all
// agents and all kube-proxies know.
func (s *corpusStage) placeServices(checks []corpus.Check) {
	s.t.Helper()
	want := map[model.EndpointID][]servicePort{}
	for _, c := range checks {
		p := servicePort{c.Packet.Protocol, c.Packet.DstPort}
		ofSockets := p.protocol == model.ProtoTCP || p.protocol == model.ProtoUDP
		if c.DstEndpoint == nil || !ofSockets || p.port == 0 || !s.pods[*c.DstEndpoint].serving {
			continue
		}
		if ports := want[*c.DstEndpoint]; !slices.Contains(ports, p) {
			want[*c.DstEndpoint] = append(ports, p)
		}
	}
	for id := range s.services {
		if want[id] == nil {
			s.must(s.client.CoreV1().Services(id.Namespace).Delete(s.t.Context(), id.Name, metav1.DeleteOptions{}))
			delete(s.services, id)
		}
	}
	for id, ports := range want {
		var texts []string
		for _, p := range ports {
			texts = append(texts, p.String())
		}
		s.apply(fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: %[2]s}
spec: {ipFamilyPolicy: RequireDualStack, selector: {%[3]s: %[1]s}, ports: [%[4]s]}
`, id.Name, id.Namespace, podLabel, strings.Join(texts, ", ")))
		made, err := s.client.CoreV1().Services(id.Namespace).Get(s.t.Context(), id.Name, metav1.GetOptions{})
		s.must(err)
		s.services[id] = &stagedService{ports, clusterIPs(made)}
	}
	s.awaitKnown()
	for _, n := range s.nodes {
		s.awaitTranslated(n)
	}
}

// awaitTranslated waits until every Service leads to its pod from the node. No policy is in force then.
func (s *corpusStage) awaitTranslated(n *node) {
	s.t.Helper()
	type target struct {
		servicePort
		at netip.AddrPort
	}
	var left []target
	var early []netip.Addr // to which an attempt came before kube-proxy's rules
	for id, service := range s.services {
		pod := s.pods[id].network
		for _, p := range service.ports {
			s.must(s.traffic.Serve(pod.Host, p.protocol, netip.Addr{}, p.port))
			for _, a := range service.addrs {
				if pod.Addr(a.Is6()).IsValid() {
					left = append(left, target{p, netip.AddrPortFrom(a, p.port)})
				}
			}
		}
	}
	for over := time.Now().Add(soon); len(left) > 0; {
		if time.Now().After(over) {
			s.t.Fatalf("kube-proxy on %s does not translate %v", n.Name(), left)
		}
		failed := make(chan target, len(left))
		answered := make(chan bool)
		for _, to := range left {
			go func() {
				var a echo.Attempt
				if to.protocol == model.ProtoUDP {
					a = echo.ExchangeUDP(n.Host, to.at, []byte("ready?"), never)
				} else {
					a = echo.DialTCP(n.Host, to.at, never)
				}
				if a.Outcome != echo.Connected {
					failed <- to
				}
				answered <- true
			}()
		}
		for range left {
			<-answered
		}
		close(failed)
		left = nil
		for to := range failed {
			left, early = append(left, to), append(early, to.at.Addr())
		}
	}
	s.forgetUntranslated(early)
}

// clusterIP is where pods and nodes reach the check's destination by way of its Service.
func (s *corpusStage) clusterIP(c corpus.Check) (at netip.AddrPort, ok bool, err error) {
	p := c.Packet
	if c.DstEndpoint == nil || s.host(p.Src, c.SrcEndpoint) == s.world.Host {
		return at, false, nil
	}
	service := s.services[*c.DstEndpoint]
	if service == nil || !slices.Contains(service.ports, servicePort{p.Protocol, p.DstPort}) {
		return at, false, nil
	}
	for _, a := range service.addrs {
		if a.Is6() == p.Dst.Is6() {
			return netip.AddrPortFrom(a, p.DstPort), true, nil
		}
	}
	return at, false, nil
}
