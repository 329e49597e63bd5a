//go:build linux

package main

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

const (
	perDeployment = 50
	perNamespace  = 500
	bigNamespace  = 10_000 // pods of the first namespace
)

// deployments is what most clusters look like: Deployments of 50 pods, ten to a namespace but for one of 10,000 pods, one
// pod in five with a label of its own as in a StatefulSet, and Kubernetes policies that let in an app and the
// namespaces with some label. Local pods are spread over all. Strings and the labels of a ReplicaSet are shared, as the
// Kubernetes source does it.
func deployments(sink func([]model.Update), local, remote, policies int) feed {
	f := feed{sink: sink, local: local, remote: remote}
	total := local + remote
	namespaces := namespaceOf(total-1) + 1
	for i := range namespaces {
		f.add(namespace(i, "blue"), model.ProfileUpdate{Name: fmt.Sprintf("ksa.ns-%d.default", i), Profile: &model.Profile{}})
	}
	for i := range policies {
		f.add(networkPolicy(i, namespaces))
	}
	var shared *model.Endpoint
	for i := range total {
		u := pod(i, shared)
		if shared = u.Endpoint; local > 0 && i%(total/local) == 0 {
			ep := *u.Endpoint
			ep.Node, ep.Iface = thisNode, fmt.Sprintf("cali%011x", i)
			u.Endpoint = &ep
		}
		f.add(u)
	}
	return f
}

func namespaceOf(i int) int { return max(0, i-bigNamespace+perNamespace) / perNamespace }

func hash(deployment int) string { return fmt.Sprintf("%08x", deployment*2654435761) }

func namespace(i int, color string) model.ProfileUpdate {
	ns := fmt.Sprintf("ns-%d", i)
	open := []model.Rule{{Action: model.Allow}}
	return model.ProfileUpdate{Name: "kns." + ns, Profile: &model.Profile{Ingress: open, Egress: open, Labels: map[string]string{
		"pcns.projectcalico.org/name": ns, "pcns.env": fmt.Sprintf("env-%d", i%50), "pcns.color": color,
	}}}
}

// pod is the i-th pod, on another node. It shares what it can with the one before it, which may be nil.
func pod(i int, before *model.Endpoint) model.EndpointUpdate {
	deployment, ns := i/perDeployment, fmt.Sprintf("ns-%d", namespaceOf(i))
	ep := &model.Endpoint{Node: fmt.Sprintf("node-%d", i%5000), Iface: fmt.Sprintf("cali%011x", i), Addrs: []netip.Addr{addr(i + 1)}}
	ep.Profiles = []string{"kns." + ns, "ksa." + ns + ".default"}
	ep.Ports = []model.NamedPort{{Name: "http", Protocol: model.ProtoTCP, Port: 8080}}
	ep.Labels = map[string]string{
		selector.NamespaceLabel: ns, "projectcalico.org/orchestrator": "k8s", "projectcalico.org/serviceaccount": "default",
		"app": fmt.Sprintf("app-%d", deployment%10), "pod-template-hash": hash(deployment), "tier": []string{"front", "back"}[deployment%2],
	}
	if before != nil && slices.Equal(before.Profiles, ep.Profiles) {
		ep.Profiles, ep.Ports = before.Profiles, before.Ports
		if before.Labels["pod-template-hash"] == ep.Labels["pod-template-hash"] && before.Labels["pod"] == "" {
			ep.Labels = before.Labels
		}
	}
	name := fmt.Sprintf("app-%d-%s-%05d", deployment%10, hash(deployment), i)
	if deployment%5 == 0 {
		ep.Labels["pod"] = name
	}
	return model.EndpointUpdate{ID: model.WorkloadID(ns, name), Endpoint: ep}
}

// networkPolicy lets an app of a namespace get in from another one, and from namespaces with a label by number or name
// of a port.
func networkPolicy(i, namespaces int) model.PolicyUpdate {
	ns := fmt.Sprintf("ns-%d", i%namespaces)
	inNamespace := selector.Equal(selector.NamespaceLabel, ns)
	app := func(n int) *selector.Selector {
		return selector.And(selector.Equal("projectcalico.org/orchestrator", "k8s"), inNamespace, selector.Equal("app", fmt.Sprintf("app-%d", n%10)))
	}
	tcp := model.ProtoTCP
	peer := model.Rule{Action: model.Allow, Protocol: &tcp, Source: model.Entity{Selector: app(i + 1)}}
	peer.Destination.Ports = []model.PortRange{{Lo: 80, Hi: 80}}
	others := model.Rule{Action: model.Allow, Index: 1, Protocol: &tcp, Source: model.Entity{Selector: selector.Equal("pcns.env", fmt.Sprintf("env-%d", i%50))}}
	if i%5 == 0 {
		others.Destination = model.Entity{NamedPorts: []string{"http"}, Selector: inNamespace}
	}
	return model.PolicyUpdate{
		Key: model.PolicyKey{Kind: model.KindKubernetesNetworkPolicy, Namespace: ns, Name: fmt.Sprintf("p-%d", i)},
		Policy: &model.Policy{
			Tier: model.TierDefault, Order: model.OrderNetworkPolicy, Selector: app(i / namespaces), AppliesIngress: true,
			Ingress: []model.Rule{peer, others},
		},
	}
}
