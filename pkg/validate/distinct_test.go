package validate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/margay-project/margay/internal/testutil"
)

func TestListsAreWithoutDuplicatesInTheirOrder(t *testing.T) {
	for _, n := range []int{0, 1, 15, 16, 17, 40} {
		var d distinct[int]
		var want []int
		for i := range n {
			want = append(want, i*7%n)
		}
		for range 3 {
			for _, v := range want {
				d.add(v)
			}
		}
		if !slices.Equal(d.list, want) {
			t.Errorf("%d entries three times: %v", n, d.list)
		}
	}
}

// What a tenant writes into one object must not keep others waiting: as many addresses and ports as an object holds are
// read in a blink. Comparing each with each takes many times the limit.
func TestObjectsWithVeryManyEntriesAreReadQuickly(t *testing.T) {
	const entries, limit = 150_000, 10 * time.Second
	service, pod := &corev1.Service{}, &corev1.Pod{}
	pod.Spec.NodeName, pod.Status.PodIP = "n1", "10.0.0.1"
	pod.Spec.Containers = make([]corev1.Container, 1)
	for i := range entries {
		service.Spec.ExternalIPs = append(service.Spec.ExternalIPs, fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255))
		port := corev1.ContainerPort{Name: fmt.Sprintf("p-%06d", i), ContainerPort: int32(1 + i%65535)}
		pod.Spec.Containers[0].Ports = append(pod.Spec.Containers[0].Ports, port)
	}
	started := testutil.CPUTime(t)
	s, _, _ := Service(service)
	p, _, _ := Pods{}.Pod(pod)
	if took := testutil.CPUTime(t) - started; took > limit {
		t.Errorf("took %v", took)
	}
	if len(s.Service.External) != entries || len(p.Endpoint.Ports) != entries {
		t.Errorf("%d addresses and %d ports", len(s.Service.External), len(p.Endpoint.Ports))
	}
}

// An annotation has room for some 16,000 addresses, and whoever may write pods may write many.
func TestPodClaimsABoundedNumberOfAddresses(t *testing.T) {
	var list []string
	for i := range 15_000 {
		list = append(list, fmt.Sprintf("10.1.%d.%d/32", i>>8, i&255))
	}
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.Spec.NodeName = "shop", "db", "n1"
	p.Annotations = map[string]string{annotationPodIPs: strings.Join(list, ",")}
	u, problems, ok := Pods{Annotator: CalicoAnnotator}.Pod(p)
	if !ok || len(u.Endpoint.Addrs) != maxPodAddrs || u.Endpoint.Addrs[0].String() != "10.1.0.0" {
		t.Errorf("%d addresses", len(u.Endpoint.Addrs))
	}
	if len(problems) == 0 || !strings.Contains(problems[0].Reason, "at most 64") {
		t.Errorf("problems: %v", problems)
	}
}
