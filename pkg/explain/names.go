package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/suggest"
)

// name is an end of a request as it is written.
type name struct {
	text            string
	kind            string // one of the values of kindWords; empty: a pod, or a Service
	namespace, name string
	alone           bool // no namespace is written
}

// kindWords are the kinds that names can be of, by what kubectl calls them.
var kindWords = map[string]string{
	"pod": "Pod", "pods": "Pod", "po": "Pod",
	"service": "Service", "services": "Service", "svc": "Service",
	"node": "Node", "nodes": "Node", "no": "Node",
	"deployment": "Deployment", "deployments": "Deployment", "deploy": "Deployment",
	"replicaset": "ReplicaSet", "replicasets": "ReplicaSet", "rs": "ReplicaSet",
	"statefulset": "StatefulSet", "statefulsets": "StatefulSet", "sts": "StatefulSet",
	"daemonset": "DaemonSet", "daemonsets": "DaemonSet", "ds": "DaemonSet",
	"job": "Job", "jobs": "Job",
}

// kindOf is the kind that a word means; empty: it is no kind.
func kindOf(word string) string { return kindWords[strings.ToLower(word)] }

// likeAddress reports whether a name is most likely an IPv4 address that is written wrong: four numbers with dots.
func (n name) likeAddress() bool {
	return strings.Count(n.text, ".") == 3 && strings.Trim(n.text, "0123456789.") == ""
}

// likeDomain reports whether a name may be one of the world's DNS: it has a dot, and nothing says that it is of the cluster.
func (n name) likeDomain() bool { return n.alone && n.kind == "" && strings.Contains(n.name, ".") }

// parseName reads NAME, NAMESPACE/NAME, KIND/NAME, NAMESPACE/KIND/NAME or KIND/NAMESPACE/NAME.
func parseName(text, namespace string) (name, error) {
	if namespace == "" {
		namespace = "default"
	}
	n := name{text: text, namespace: namespace}
	parts := strings.Split(text, "/")
	switch {
	case slices.Contains(parts, "") || len(parts) > 3:
		return n, fmt.Errorf("%q is not a name: want NAME, NAMESPACE/NAME, KIND/NAME or NAMESPACE/KIND/NAME", text)
	case len(parts) == 1:
		n.name, n.alone = parts[0], true
	case len(parts) == 2 && kindOf(parts[0]) != "":
		n.kind, n.name, n.alone = kindOf(parts[0]), parts[1], true
	case len(parts) == 2:
		n.namespace, n.name = parts[0], parts[1]
	case kindOf(parts[1]) != "":
		n.namespace, n.kind, n.name = parts[0], kindOf(parts[1]), parts[2]
	case kindOf(parts[0]) != "":
		n.kind, n.namespace, n.name = kindOf(parts[0]), parts[1], parts[2]
	default:
		return n, fmt.Errorf("%q: %q is not a kind that can be explained; those are pod, service, node, deployment, replicaset, statefulset, daemonset and job",
			text, parts[1])
	}
	return n, nil
}

func (n name) pod() model.EndpointID { return model.WorkloadID(n.namespace, n.name) }

func (n name) service() model.ServiceKey {
	return model.ServiceKey{Namespace: n.namespace, Name: n.name}
}

// serviceByDNS is the Service that a name of the cluster's DNS means: db.shop, db.shop.svc, db.shop.svc.cluster.local.
func (n name) serviceByDNS() (model.ServiceKey, bool) {
	parts := strings.Split(n.name, ".")
	if n.kind != "" || !n.alone || len(parts) < 2 || len(parts) > 2 && parts[2] != "svc" {
		return model.ServiceKey{}, false
	}
	return model.ServiceKey{Namespace: parts[1], Name: parts[0]}, true
}

// podsOf are the pods of a workload, sorted: those that have the names and labels that its controller gives. Who owns
// a pod is not kept.
func podsOf(g *calc.Graph, n name) []model.EndpointID {
	var pods []model.EndpointID
	for id := range g.EndpointIDs() {
		if id.Namespace != n.namespace {
			continue
		}
		if n.kind != "Job" && !strings.HasPrefix(id.Name, n.name+"-") {
			continue
		}
		if ep, ok := g.FindEndpoint(id); ok && ownedBy(n, id.Name, ep.Labels) {
			pods = append(pods, id)
		}
	}
	slices.SortFunc(pods, model.EndpointID.Compare)
	return pods
}

func ownedBy(n name, pod string, labels map[string]string) bool {
	rest := strings.TrimPrefix(pod, n.name+"-")
	isSuffix := len(rest) == 5 && !strings.Contains(rest, "-")
	hash := labels["pod-template-hash"]
	switch n.kind {
	case "Deployment":
		return hash != "" && strings.HasPrefix(rest, hash+"-")
	case "ReplicaSet":
		return isSuffix && labels["controller-revision-hash"] == "" && (hash == "" || strings.HasSuffix(n.name, "-"+hash))
	case "StatefulSet":
		return labels["statefulset.kubernetes.io/pod-name"] == pod && strings.Trim(rest, "0123456789") == ""
	case "DaemonSet":
		return isSuffix && labels["controller-revision-hash"] != ""
	case "Job":
		return labels["batch.kubernetes.io/job-name"] == n.name || labels["job-name"] == n.name
	}
	return false
}

// beginning are the pods of the name's namespace whose names begin with it, sorted.
func beginning(g *calc.Graph, n name) []model.EndpointID {
	var pods []model.EndpointID
	for id := range g.EndpointIDs() {
		if id.Namespace == n.namespace && strings.HasPrefix(id.Name, n.name) {
			pods = append(pods, id)
		}
	}
	slices.SortFunc(pods, model.EndpointID.Compare)
	return pods
}

// mostNames is how many names of a namespace a misspelt one is compared with: enforcement waits for that, some 4 µs a
// name.
const mostNames = 5000

// meant asks for what a name was most likely meant for that nothing has: "; is shop/web meant?". Of the destination it
// may be a Service.
func meant(g *calc.Graph, n name, services bool) string {
	elsewhere, here := map[string]bool{}, map[string]bool{}
	namespaces := map[string]bool{}
	note := func(namespace, name string) {
		switch {
		case namespace == n.namespace:
			here[name] = true
		case name == n.name || strings.HasPrefix(name, n.name+"-"):
			elsewhere[namespace+"/"+name] = true
			namespaces[namespace] = true
		}
	}
	for id := range g.EndpointIDs() {
		note(id.Namespace, id.Name)
	}
	if services {
		for key := range g.Services() {
			note(key.Namespace, key.Name)
		}
	}
	if len(here) <= mostNames {
		if best, ok := suggest.Nearest(n.name, sortedKeys(here)); ok {
			return question([]string{n.namespace + "/" + best})
		}
	}
	if best, ok := suggest.Nearest(n.namespace, sortedKeys(namespaces)); ok && !n.alone {
		for name := range elsewhere {
			if namespace, _, _ := strings.Cut(name, "/"); namespace != best {
				delete(elsewhere, name)
			}
		}
	}
	return question(sortedKeys(elsewhere))
}

func sortedKeys(set map[string]bool) []string {
	keys := make([]string, 0, len(set))
	for k := range set {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// question is "; is a meant?", "; are a, b or c meant?", or nothing.
func question(names []string) string {
	const some = 3
	if len(names) == 0 {
		return ""
	}
	more := ""
	if len(names) > some {
		more = fmt.Sprintf(" (or one of %d more)", len(names)-some)
		names = names[:some]
	}
	if len(names) == 1 {
		return "; is " + names[0] + " meant?"
	}
	last := len(names) - 1
	return "; is " + strings.Join(names[:last], ", ") + " or " + names[last] + " meant" + more + "?"
}

// parseAddr reads an address, with or without brackets.
func parseAddr(text string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return addr.Unmap().WithZone(""), err == nil
}
