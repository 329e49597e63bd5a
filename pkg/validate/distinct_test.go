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

// What a tenant writes into one object must not keep others waiting: ten times as many addresses and ports cost some ten times as much,
// and a hundred times if each is compared with each.
func TestObjectsWithVeryManyEntriesAreReadInProportion(t *testing.T) {
	const few, many, most = 4_000, 40_000, 40
	cost := func(entries int) time.Duration {
		service, pod := &corev1.Service{}, &corev1.Pod{}
		pod.Spec.NodeName, pod.Status.PodIP = "n1", "10.0.0.1"
		pod.Spec.Containers = make([]corev1.Container, 1)
		for i := range entries {
			service.Spec.ExternalIPs = append(service.Spec.ExternalIPs, fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255))
			port := corev1.ContainerPort{Name: fmt.Sprintf("p-%06d", i), ContainerPort: int32(1 + i%65535)}
			pod.Spec.Containers[0].Ports = append(pod.Spec.Containers[0].Ports, port)
		}
		return testutil.LeastCPUTime(t, func() {
			s, _, _ := Service(service)
			p, _, _ := Pods{}.Pod(pod)
			if len(s.Service.External) != entries || len(p.Endpoint.Ports) != entries {
				t.Errorf("%d addresses and %d ports, want %d", len(s.Service.External), len(p.Endpoint.Ports), entries)
			}
		})
	}
	little, much := cost(few), cost(many)
	t.Logf("%d entries: %v, %d: %v", few, little, many, much)
	if much > most*little {
		t.Errorf("%d entries took %v, %d took %v", few, little, many, much)
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
