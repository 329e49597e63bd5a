package validate

import (
	"math"
	"net/netip"

	"github.com/margay-project/margay/pkg/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Service returns the addresses that kube-proxy translates for a Service: cluster addresses, external addresses and
// those of its load balancers. It translates nothing for a headless Service, nor for a load balancer that delivers
// packets to the nodes as its own traffic (ipMode Proxy).
func Service(s *corev1.Service) (model.ServiceUpdate, []Problem, bool) {
	rep := Report{ref: Ref{Kind: "Service", Namespace: s.Namespace, Name: s.Name}}
	svc := &model.Service{}
	var cluster, external distinct[netip.Addr]
	add := func(list *distinct[netip.Addr], path *field.Path, text string) {
		if text != "" && text != corev1.ClusterIPNone {
			rep.addAddr(list, path.String(), text)
		}
	}
	spec := field.NewPath("spec")
	for i, ip := range s.Spec.ClusterIPs {
		add(&cluster, spec.Child("clusterIPs").Index(i), ip)
	}
	if len(s.Spec.ClusterIPs) == 0 {
		add(&cluster, spec.Child("clusterIP"), s.Spec.ClusterIP)
	}
	for i, ip := range s.Spec.ExternalIPs {
		add(&external, spec.Child("externalIPs").Index(i), ip)
	}
	for i, in := range s.Status.LoadBalancer.Ingress {
		if in.IPMode == nil || *in.IPMode != corev1.LoadBalancerIPModeProxy {
			add(&external, field.NewPath("status", "loadBalancer", "ingress").Index(i).Child("ip"), in.IP)
		}
	}
	svc.Cluster, svc.Ports = cluster.list, servicePorts(s.Spec.Ports)
	svc.Headless = isHeadless(s)
	if !svc.Headless && s.Spec.Type != corev1.ServiceTypeExternalName {
		svc.External = external.list
	}
	key := model.ServiceKey{Namespace: s.Namespace, Name: s.Name}
	return model.ServiceUpdate{Key: key, Service: svc}, rep.Done(), true
}

// isHeadless reports whether the Service says that it has no cluster address. One that says nothing of it, in a directory of
// manifests, may have one. The type ExternalName is another thing: its name stands for a name, and not for addresses of backends.
func isHeadless(s *corev1.Service) bool {
	none := s.Spec.ClusterIP == corev1.ClusterIPNone || len(s.Spec.ClusterIPs) > 0 && s.Spec.ClusterIPs[0] == corev1.ClusterIPNone
	return none && s.Spec.Type != corev1.ServiceTypeExternalName
}

// servicePorts are the ports that clients use. They decide nothing, so their errors are not reported.
func servicePorts(list []corev1.ServicePort) []model.NamedPort {
	var ports []model.NamedPort
	for _, p := range list {
		if num, ok := protocolNumber(p.Protocol); ok && p.Port > 0 && p.Port <= math.MaxUint16 {
			ports = append(ports, model.NamedPort{Name: p.Name, Protocol: num, Port: uint16(p.Port)})
		}
	}
	return ports
}
