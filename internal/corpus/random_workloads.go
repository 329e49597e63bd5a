package corpus

import (
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/oracle"
	"github.com/margay-project/margay/pkg/model"
)

// drawProfileObject draws a Profile. Its labels are of all kinds that an endpoint has or inherits.
func drawProfileObject(t *rapid.T, i int) *oracle.ProfileObject {
	p := &oracle.ProfileObject{TypeMeta: drawGroup(t, "Profile"), ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("profile%d", i)}}
	p.Spec.LabelsToApply = rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "pcns.a", "pcsa.b"}), rapid.SampledFrom(labelValues), 0, 3).Draw(t, "labels")
	for range upTo(t, 0, 3, "ingress") {
		p.Spec.Ingress = append(p.Spec.Ingress, drawRuleObject(t, model.Ingress, true))
	}
	for range upTo(t, 0, 3, "egress") {
		p.Spec.Egress = append(p.Spec.Egress, drawRuleObject(t, model.Egress, true))
	}
	return p
}

// drawWorkloadObject draws a WorkloadEndpoint with addresses that no pod claims.
func drawWorkloadObject(t *rapid.T, i int) *oracle.WorkloadObject {
	w := &oracle.WorkloadObject{TypeMeta: drawGroup(t, "WorkloadEndpoint"), ObjectMeta: metav1.ObjectMeta{
		Namespace: one(t, namespaces, "namespace"), Name: fmt.Sprintf("vm%d", i), Labels: drawKubernetesLabels(t)}}
	s := &w.Spec
	s.Node, s.InterfaceName = fmt.Sprintf("node%d", i%2), fmt.Sprintf("tap%d", i)
	s.IPNetworks = one(t, [][]string{
		{netip.AddrFrom4([4]byte{10, 0, 0, byte(200 + i)}).String()},
		{netip.AddrFrom4([4]byte{10, 0, 0, byte(200 + i)}).String() + "/32", netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(200 + i)}).String() + "/128"},
	}, "networks")
	s.Profiles = one(t, [][]string{nil, {"kns.n1"}, {"profile0"}, {"profile0", "profile1"}, {"profile1", "kns.n2"}, {"kns.n1", "profile0", "ksa.n1.sa"}, {"missing"}}, "profiles")
	s.Orchestrator = one(t, []string{"", "openstack"}, "orchestrator")
	s.ServiceAccountName = one(t, []string{"", "", "sa"}, "service account")
	for range upTo(t, 0, 2, "ports") {
		s.Ports = append(s.Ports, oracle.WorkloadPort{Name: one(t, portNames, "name"), Port: int32(max(1, one(t, numbers, "port"))),
			Protocol: one(t, []intstr.IntOrString{intstr.FromString("TCP"), intstr.FromString("UDP")}, "protocol")})
	}
	return w
}
