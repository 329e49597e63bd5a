package hostile

import (
	"fmt"
	"strings"
)

const (
	sliceCount      = 131 // objects of a tenant's Service: with as many backends each, nearly what a namespace may have
	sliceBackends   = 1000
	setCount        = 4 // network sets: together nearly the prefixes that a namespace may have
	setPrefixes     = 32_000
	nameNumbers     = 128 // numbers that the tenant's pods give one name of a port
	objectKinds     = 3
	tenantReference = "limit" // the label, Service and name of port that the tenant's policy refers to
)

// objects are the manifests, by name, of what a tenant's policy refers to beside addresses: EndpointSlices, network sets and named ports,
// each kind at its limit. Turns differ in one object of each kind. A tenant at no limit writes as much that nothing refers to.
func (s script) objects(turn int) map[string]string {
	all := map[string]string{}
	for i := range sliceCount {
		all[fmt.Sprintf("slice-%d", i)] = s.slice(i, 0)
	}
	for i := range setCount {
		all[fmt.Sprintf("set-%d", i)] = s.set(i, 0)
	}
	for i := range nameNumbers {
		all[fmt.Sprintf("named-%d", i)] = s.named(i, 0)
	}
	for k := range objectKinds {
		name, text := s.object(turn + k)
		all[name] = text
	}
	return all
}

// object is what the tenant changes in that turn, of one kind after the other.
func (s script) object(turn int) (name, text string) {
	switch turn % objectKinds {
	case 0:
		return "slice-0", s.slice(0, turn)
	case 1:
		return "set-0", s.set(0, turn)
	}
	return "named-0", s.named(0, turn)
}

// owner is the reference that objects bear: one that the policy has, or another.
func (s script) owner() string {
	if s.AtLimits {
		return tenantReference
	}
	return "none"
}

func (s script) slice(i, turn int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: s%d, namespace: evil, labels: {kubernetes.io/service-name: %s}}\n", i, s.owner())
	fmt.Fprintf(&b, "addressType: IPv4\nports: [{port: %d, protocol: TCP}]\nendpoints:\n", 1000+turn%8)
	for k := range sliceBackends {
		n := i*sliceBackends + k
		fmt.Fprintf(&b, "- {addresses: [11.%d.%d.%d]}\n", n>>16, n>>8&255, n&255)
	}
	return b.String()
}

func (s script) set(i, turn int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: projectcalico.org/v3\nkind: NetworkSet\nmetadata: {name: s%d, namespace: evil, labels: {crowd: %s}}\nspec: {nets: [", i, s.owner())
	for k := range setPrefixes {
		n := i*setPrefixes + k
		if k == 0 {
			n += (1 + turn%8) << 20
		}
		fmt.Fprintf(&b, "12.%d.%d.%d,", n>>16, n>>8&255, n&255)
	}
	return strings.TrimSuffix(b.String(), ",") + "]}\n"
}

// named is a pod of another node.
func (s script) named(i, turn int) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: named-%d, namespace: evil, labels: {app: named}}\n"+
		"spec: {nodeName: n9, containers: [{name: c, ports: [{name: %s, containerPort: %d}]}]}\nstatus: {phase: Running, podIP: 13.0.0.%d}\n",
		i, s.owner(), 2000+i+turn%8*200, i+1)
}

// referring is the policy that has to do with all of it.
func (s script) referring() string {
	return fmt.Sprintf(`apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: referring, namespace: evil}
spec:
  order: 1
  selector: app == 't2'
  types: [Egress]
  egress:
  - {action: Allow, destination: {selector: crowd == '%[1]s'}}
  - {action: Allow, protocol: TCP, destination: {services: {name: %[1]s}}}
  - {action: Allow, protocol: TCP, destination: {selector: app == 'named', ports: [%[1]s]}}
  - {action: Allow}
`, tenantReference)
}
