package pair

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/margay-project/margay/internal/corpus"
	"github.com/margay-project/margay/internal/oracle"
	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

var drawObjects = rapid.Custom(corpus.DrawObjects)

// newPolicy puts other objects in force on both sides and waits until they are: policies of every kind, tiers, sets, and
// labels and ports of pods. An agent believes only after a second that an object is missing from its folder. So policies
// that are not drawn again stay as ones that apply to no pod, and other objects stay as they are.
func (p *pair) newPolicy() {
	p.t.Helper()
	p.round++
	drawn := drawObjects.Example(int(p.rand.Uint64() >> 2))
	p.ownPods(drawn)
	docs, err := corpus.ObjectDocuments(drawn)
	must(p.t, err)
	next := map[string]corpus.Document{}
	for _, text := range docs {
		d := documentOf(p, text)
		if d.Kind == "Node" || d.Kind == "Namespace" || d.Kind == "Profile" || !readable(text) {
			continue
		}
		next[keyOf(d)] = d
	}
	for key, d := range p.docs {
		if _, again := next[key]; !again {
			if spent, ok := d.Spent(); ok {
				d.Text = []byte(strings.TrimSuffix(spent, "---\n"))
			}
			next[key] = d
		}
	}
	p.docs = next
	p.apply()
}

// ownPods puts the pods of the network in the place of the drawn ones, with their labels and ports.
func (p *pair) ownPods(o *oracle.Objects) {
	drawn := o.Pods
	o.Pods, o.Profiles, o.Workloads = nil, nil, nil
	for i := range localPods + remotePods {
		from := drawn[i%len(drawn)]
		pod := &corev1.Pod{}
		pod.Name, pod.Namespace, pod.Labels = podName(i), podNamespace(i), from.Labels
		pod.Spec.NodeName, pod.Spec.Containers = "node0", from.Spec.Containers
		if i >= localPods {
			pod.Spec.NodeName = "node1"
		}
		pod.Status.Phase = corev1.PodRunning
		for _, a := range podAddrs(i) {
			pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: a.String()})
		}
		pod.Status.PodIP = pod.Status.PodIPs[0].IP
		o.Pods = append(o.Pods, pod)
	}
}

func keyOf(d corpus.Document) string {
	return fmt.Sprint(d.Kind, d.OfCalico(), d.Namespace, d.Name)
}

func documentOf(p *pair, text []byte) corpus.Document {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		}
	}
	must(p.t, yaml.Unmarshal(text, &head))
	return corpus.Document{APIVersion: head.APIVersion, Kind: head.Kind, Namespace: head.Metadata.Namespace, Name: head.Metadata.Name, Text: bytes.TrimSpace(text)}
}

// readable reports whether the object is used: of one that is rejected, the version before would stay.
func readable(text []byte) bool {
	return !slices.ContainsFunc(kinds.Parse("random.yaml", text), func(d validate.Document) bool { return !d.OK })
}

// apply writes the objects and waits until both agents enforce them.
func (p *pair) apply() {
	p.t.Helper()
	var list []corpus.Document
	for _, key := range slices.Sorted(maps.Keys(p.docs)) {
		list = append(list, p.docs[key])
	}
	p.manifest = objects() + corpus.Manifest(list)
	mark := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: mark, namespace: margay-e2e}
spec: {nodeName: node0, containers: [{name: c}]}
status: {phase: Running, podIP: %s}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: mark, namespace: margay-e2e}
spec: {podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {round: "%d"}}}]}]}
`, p.sides[0].node.Pod(markNamespace, "mark").Addr4(), p.round)
	temporary := filepath.Join(p.dir, "state.tmp")
	must(p.t, os.WriteFile(temporary, []byte(p.manifest+mark), 0o600), os.Rename(temporary, filepath.Join(p.dir, "state.yaml")))
	for _, s := range p.sides {
		if s.agent.Cmd == nil {
			s.agent.Start()
		}
	}
	for _, s := range p.sides {
		testutil.WaitFor(p.t, testcluster.Soon, s.name+" to enforce round "+fmt.Sprint(p.round), func() bool { return s.inForce(p.round) })
	}
	var updates []model.Update
	for _, d := range kinds.Parse("state.yaml", []byte(p.manifest)) {
		updates = append(updates, d.Updates...)
	}
	p.oracle = oracle.New(updates)
	p.edges = edgesOf(updates)
}

// edgesOf are the ports at both ends of the ranges that rules name, and beside them.
func edgesOf(updates []model.Update) []uint16 {
	edges := []uint16{80}
	for _, u := range updates {
		policy, ok := u.(model.PolicyUpdate)
		if !ok || policy.Policy == nil {
			continue
		}
		for _, r := range slices.Concat(policy.Policy.Ingress, policy.Policy.Egress) {
			for _, x := range slices.Concat(r.Destination.Ports, r.Destination.NotPorts) {
				edges = append(edges, x.Lo, max(x.Lo, 1)-1, x.Hi, min(x.Hi, 65534)+1)
			}
		}
	}
	return edges
}

// inForce reports whether the policy of the round is, for all pods. The set shows that the agent has taken in the whole round, so it is
// asked for first: what it says of the pods after that is about this round's policy, which may be so large that it is still being compiled.
func (s *side) inForce(round int) bool {
	text := fmt.Sprintf("round=%d in ", round)
	answer, err := s.agent.Ask("sets")
	if err != nil || !slices.ContainsFunc(answer.Sets, func(row inspect.SetRow) bool { return row.Number != 0 && strings.Contains(row.Text, text) }) {
		return false
	}
	answer, err = s.agent.Ask("endpoints")
	if err != nil || len(answer.Endpoints) != localPods+1 {
		return false
	}
	for _, e := range answer.Endpoints {
		if e.Error != "" || len(e.Attached) == 0 {
			return false
		}
	}
	return true
}
