package validate

import (
	"github.com/margay-project/margay/pkg/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Service returns the addresses that kube-proxy translates for a Service: cluster addresses (none for a headless one),
// external addresses and those of its load balancers.
func Service(s *corev1.Service) (model.ServiceUpdate, []Problem, bool) {
	rep := report{ref: Ref{Kind: "Service", Namespace: s.Namespace, Name: s.Name}}
	svc := &model.Service{}
	add := func(path *field.Path, text string) {
		if text != "" && text != corev1.ClusterIPNone {
			svc.Addrs = rep.appendAddr(svc.Addrs, path.String(), text)
		}
	}
	spec := field.NewPath("spec")
	for i, ip := range s.Spec.ClusterIPs {
		add(spec.Child("clusterIPs").Index(i), ip)
	}
	if len(s.Spec.ClusterIPs) == 0 {
		add(spec.Child("clusterIP"), s.Spec.ClusterIP)
	}
	for i, ip := range s.Spec.ExternalIPs {
		add(spec.Child("externalIPs").Index(i), ip)
	}
	for i, in := range s.Status.LoadBalancer.Ingress {
		add(field.NewPath("status", "loadBalancer", "ingress").Index(i).Child("ip"), in.IP)
	}
	key := model.ServiceKey{Namespace: s.Namespace, Name: s.Name}
	return model.ServiceUpdate{Key: key, Service: svc}, rep.done(), true
}
