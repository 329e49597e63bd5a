package cluster

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/lab"
)

// felix is the kind that a cluster may lack.
const felix = "FelixConfiguration"

// staged is a kind that is not required.
const staged = "StagedNetworkPolicy"

// agentUser is whom the API server takes the agent for.
const agentUser = "system:serviceaccount:" + agentNamespace + ":" + agentAccount

// missing is a cluster that lacks something.
type missing struct {
	*cluster
	agents      []*agent
	client, web *lab.Host // pods of the first node
	node        *lab.Host // that node
}

// Whatever a cluster lacks, the agent enforces what it can, and says exactly what is missing. All parts share a cluster.
func TestWhatIsMissingIsSaid(t *testing.T) {
	c := newCluster(t, options{proxy: "none", flags: []string{"--discovery-every", "1s"}})
	c.namespace("shop")
	client, web := c.pod("shop", "client", "n1"), c.pod("shop", "web", "n1")
	m := &missing{cluster: c, client: client.Host, web: web.Host, node: c.nodes[0].Host}
	m.agents = []*agent{c.nodes[0].agent, c.nodes[1].agent}
	c.step("no kind of Calico's", m.noCustomKinds)
	c.step("an object is told of", m.objectIsToldOf)
	c.step("a kind comes and goes", m.kindComesAndGoes)
	c.step("objects that cannot be used", m.objectsThatCannotBeUsed)
	c.step("a kind whose conversion fails", m.conversionFails)
	c.step("no right to a kind", m.noRightToAKind)
	c.step("no right to a required kind", m.noRightToARequiredKind)
	c.step("rights are taken away", m.rightsAreTakenAway)
}

func (m *missing) noCustomKinds() {
	for _, a := range m.agents {
		k := a.awaitKind(felix, "absent")
		m.contains("why the kind is absent", k.Error, "felixconfigurations of projectcalico.org/v3", "felixconfigurations of crd.projectcalico.org/v1")
		a.awaitProbe(http.StatusOK, "optional kinds: absent")
		_, metrics := a.get(metricsPort, "/metrics")
		m.contains("/metrics", metrics, `margay_kind_state{kind="FelixConfiguration",state="absent"} 1`+"\n",
			`margay_kind_state{kind="FelixConfiguration",state="failing"} 0`+"\n", `margay_kind_failures_total{kind="FelixConfiguration"} 0`+"\n")
		if said := a.complaints(0); len(said) != 0 {
			m.t.Errorf("that nothing is wrong is no reason to complain: %v", said)
		}
	}
	m.contains("margay show status", m.agents[0].tool("show", "status"), "absent, 0 objects: the API server does not serve")
	m.enforces()
}

// objectIsToldOf is about a policy that every API server takes and that does not do what its author wanted. Of the two
// agents one tells.
func (m *missing) objectIsToldOf() {
	m.policy("shop", "odd", "{podSelector: {matchLabels: {app: nobody}}, policyTypes: [Egress], ingress: [{}]}")
	var told []string
	testutil.WaitFor(m.t, soon, "an event on the policy", func() bool {
		told = m.eventsOn("networkpolicy/odd")
		return len(told) > 0
	})
	m.settle()
	for _, a := range m.agents {
		m.contains("margay show problems", a.tool("show", "problems"), "NetworkPolicy shop/odd", "spec.ingress")
		_, metrics := a.get(metricsPort, "/metrics")
		m.contains("/metrics", metrics, `margay_problem_objects{kind="NetworkPolicy",severity="warning"} 1`+"\n")
	}
	if told = m.eventsOn("networkpolicy/odd"); len(told) != 1 {
		m.t.Errorf("want one event, got %q", told)
	}
	m.contains("the event", told[0], "Warning", "PartlyIgnored", "spec.ingress", "policyTypes does not contain Ingress")
	m.deletePolicy("shop", "odd")
}

const felixCRD = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: felixconfigurations.crd.projectcalico.org}
spec:
  group: crd.projectcalico.org
  scope: Cluster
  names: {kind: FelixConfiguration, listKind: FelixConfigurationList, plural: felixconfigurations, singular: felixconfiguration}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {x-kubernetes-preserve-unknown-fields: true}}}}
`

// brokenCRD stores another version, and what is to convert it is not there.
func brokenCRD(served bool) string {
	return strings.Replace(felixCRD, "served: true\n    storage: true", fmt.Sprintf("served: %v\n    storage: false", served), 1) + `  - name: v2
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {x-kubernetes-preserve-unknown-fields: true}}}}
  conversion:
    strategy: Webhook
    webhook:
      conversionReviewVersions: [v1]
      clientConfig: {service: {namespace: nowhere, name: converter}}
`
}

func (m *missing) kindComesAndGoes() {
	m.apply(felixCRD)
	m.applySoon(configuration("v1", "default", "{defaultEndpointToHostAction: Drop}"))
	m.awaitReach(m.client, m.node.Addrs(), 0, false)
	for _, a := range m.agents {
		if k := a.awaitKind(felix, "synced"); k.Error != "" {
			m.t.Errorf("a kind that is there: %s", k.Error)
		}
	}
	m.deleteKind(felixCRD)
	m.awaitReach(m.client, m.node.Addrs(), 0, true)
	for _, a := range m.agents {
		m.contains("why the kind is absent", a.awaitKind(felix, "absent").Error, "does not serve")
	}
	m.enforces()
}

func (m *missing) objectsThatCannotBeUsed() {
	a := m.agents[0]
	from := a.logged()
	m.apply(felixCRD)
	m.applySoon(configuration("v1", "default", "{logSeverityScreen: 7, vxlanPort: {}, defaultEndpointToHostAction: Drop}"))
	m.apply(configuration("v1", "node.n1", "none"))
	m.awaitReach(m.client, m.node.Addrs(), 0, false) // what can be read counts
	var problems string
	testutil.WaitFor(m.t, soon, "the problems", func() bool {
		problems = a.tool("show", "problems")
		return strings.Contains(problems, "node.n1") && strings.Contains(problems, "logSeverityScreen")
	})
	m.contains("margay show problems", problems, `"7": want Trace, Debug, Info, Warning, Error or Fatal; log-level stays debug`,
		"FelixConfiguration node.n1", "cannot be decoded", "cannot unmarshal string")
	if k := a.awaitKind(felix, "synced"); k.Objects != 2 || k.Error != "" {
		m.t.Errorf("a kind with objects that cannot be used: %+v", k)
	}
	_, metrics := a.get(metricsPort, "/metrics")
	m.contains("/metrics", metrics, `margay_problem_objects{kind="FelixConfiguration",severity="rejected"} 1`+"\n")
	for _, words := range [][]string{{"default", "logSeverityScreen", `"7"`}, {"node.n1", "cannot be decoded"}} {
		m.once(a, from, words...)
	}
	m.deleteKind(felixCRD)
	m.awaitReach(m.client, m.node.Addrs(), 0, true)
	for _, a := range m.agents {
		a.awaitKind(felix, "absent")
	}
	m.enforces()
}

func (m *missing) conversionFails() {
	a := m.agents[0]
	from := a.logged()
	m.apply(brokenCRD(false))
	m.applySoon(configuration("v2", "default", "{defaultEndpointToHostAction: Drop}"))
	for _, a := range m.agents {
		m.contains("why the kind fails", a.awaitKind(felix, "failing").Error, "serves felixconfigurations as crd.projectcalico.org/v2")
	}
	m.once(a, from, "a kind of object cannot be followed", "crd.projectcalico.org/v2")
	m.apply(brokenCRD(true))
	for _, a := range m.agents {
		a.awaitProbe(http.StatusOK, "FelixConfiguration: the API server answers 500", "conversion webhook", "crd.projectcalico.org/v2", "converter")
	}
	m.enforces()
	_, metrics := a.get(metricsPort, "/metrics")
	m.contains("/metrics", metrics, `margay_kind_state{kind="FelixConfiguration",state="failing"} 1`+"\n", `margay_kind_objects{kind="FelixConfiguration"} 0`+"\n")
	a.kill()
	from = a.logged()
	m.must(a.launch())
	m.once(a, from, "a kind of object cannot be followed", "nothing new is enforced before it has been listed", "conversion webhook")
	a.awaitProbe(http.StatusServiceUnavailable, "FelixConfiguration: the API server answers 500", "conversion webhook")
	m.contains("margay show status", a.tool("show", "status"),
		"waiting for the first list of FelixConfiguration: the API server answers 500")
	m.deleteKind(brokenCRD(true))
	a.awaitReady()
	m.enforces()
}

// rights are the resources whose rights are taken away, by the kind that is read from them.
var rights = []struct {
	kind, group, resource string
	required              bool
}{
	{"ServiceAccount", "", "serviceaccounts", true},
	{"EndpointSlice", "discovery.k8s.io", "endpointslices", true},
	{felix, "crd.projectcalico.org", "felixconfigurations", true},
	{staged, "crd.projectcalico.org", "stagednetworkpolicies", false},
	{"Namespace", "", "namespaces", true},
	{"Node", "", "nodes", true},
	{"Pod", "", "pods", true},
	{"Service", "", "services", true},
	{"NetworkPolicy", "networking.k8s.io", "networkpolicies", true},
}

func (m *missing) noRightToAKind() {
	m.apply(felixCRD)
	i := slices.IndexFunc(calicoKinds(), func(k kinds.Kind) bool { return k.Name == staged })
	m.installCalicoKind(calicoKinds()[i], calicoCRD)
	a := m.agents[0]
	for _, r := range rights {
		if r.required {
			continue
		}
		a.terminate()
		m.grantAllBut(r.resource)
		from := a.logged()
		a.start()
		why := forbidden(verbAtFirst(r.kind), r.group, r.resource)
		a.awaitKindError(r.kind, "failing", why)
		m.contains("margay show status", a.tool("show", "status"), "ready: policy of", "failing, 0 objects: "+why)
		m.once(a, from, "a kind of object cannot be followed", "policy is enforced without it", "kind="+r.kind, why)
		a.awaitProbe(http.StatusOK, r.kind+": "+why)
		_, metrics := a.get(metricsPort, "/metrics")
		m.contains("/metrics", metrics, `margay_kind_state{kind="`+r.kind+`",state="failing"} 1`+"\n")
		m.enforces()
	}
	m.grantAllBut()
	for _, r := range rights {
		a.awaitKind(r.kind, "synced")
	}
}

// noRightToARequiredKind is about one agent after the other, none of which gets to know that a policy is gone.
func (m *missing) noRightToARequiredKind() {
	m.policy("shop", "deny", "{podSelector: {matchLabels: {app: web}}}")
	m.settle()
	a := m.agents[0]
	for _, r := range rights {
		if !r.required {
			continue
		}
		a.kill()
		m.grantAllBut(r.resource)
		m.delete("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: deny, namespace: shop}\n")
		from := a.logged()
		m.must(a.launch())
		why := forbidden(verbAtFirst(r.kind), r.group, r.resource)
		a.awaitKindError(r.kind, "listing", why)
		m.once(a, from, "a kind of object cannot be followed", "nothing new is enforced before it has been listed", "kind="+r.kind, why)
		if answer, err := a.ask("status"); err != nil || answer.Status.Ready || answer.Status.InSync {
			m.t.Errorf("ready without %s: %+v, %v", r.resource, answer, err)
		}
		m.contains("margay show status", a.tool("show", "status"),
			"waiting for the first list of "+r.kind+": "+why)
		m.reach(m.client, m.web, 80, false)
	}
	a.awaitProbe(http.StatusServiceUnavailable, "NetworkPolicy: "+forbidden("watch", "networking.k8s.io", "networkpolicies"))
	m.grantAllBut()
	a.awaitReady()
	m.awaitReach(m.client, m.web.Addrs(), 80, true)
	m.enforces()
}

// rightsAreTakenAway is about agents that run. Watches that are open go on, so the API server is started anew.
func (m *missing) rightsAreTakenAway() {
	m.policy("shop", "deny", "{podSelector: {matchLabels: {app: web}}}")
	m.settle()
	var all []string
	for _, r := range rights {
		all = append(all, r.resource)
	}
	a := m.agents[0]
	from := a.logged()
	m.grantAllBut(all...)
	m.plane.StopAPIServer()
	m.must(m.plane.StartAPIServer(m.t.Context()))
	m.deletePolicy("shop", "deny")
	for _, r := range rights {
		a.awaitKindError(r.kind, "failing", forbidden("watch", r.group, r.resource))
	}
	m.reach(m.client, m.web, 80, false)
	for _, r := range rights {
		m.once(a, from, "a kind of object cannot be followed", "its last known objects stay in force", agentUser, " "+r.resource)
	}
	m.grantAllBut()
	for _, r := range rights {
		a.awaitKind(r.kind, "synced")
	}
	m.awaitReach(m.client, m.web.Addrs(), 80, true)
	m.enforces()
}

// enforces demands that policy takes effect, and stops to.
func (m *missing) enforces() {
	m.t.Helper()
	m.policy("shop", "deny", "{podSelector: {matchLabels: {app: web}}}")
	m.awaitReach(m.client, m.web.Addrs(), 80, false)
	m.deletePolicy("shop", "deny")
	m.awaitReach(m.client, m.web.Addrs(), 80, true)
}

// forbidden is how the agent says what its user may not do.
func forbidden(verb, group, resource string) string {
	if group != "" {
		resource += "." + group
	}
	return fmt.Sprintf("forbidden: user %q may not %s %s at the cluster scope; grant that to it with a ClusterRole", agentUser, verb, resource)
}

// verbAtFirst is what an agent asks for first: for a list, which most kinds have streamed by a watch.
func verbAtFirst(kind string) string {
	if kind == felix || kind == staged {
		return "list"
	}
	return "watch"
}

// configuration is a FelixConfiguration; spec is in YAML's flow style.
func configuration(version, name, spec string) string {
	return fmt.Sprintf("apiVersion: crd.projectcalico.org/%s\nkind: FelixConfiguration\nmetadata: {name: %s}\nspec: %s\n", version, name, spec)
}

// applySoon applies an object of a kind that may not be served yet.
func (c *cluster) applySoon(manifest string) {
	c.t.Helper()
	for _, o := range c.objects(manifest) {
		testutil.WaitFor(c.t, soon, "the kind of "+o.GetName()+" to be served", func() bool { return c.applyObject(o) == nil })
	}
}

// deleteKind deletes a CRD with all of its objects and waits until they are gone.
func (c *cluster) deleteKind(crd string) {
	c.t.Helper()
	c.delete(crd)
	o := c.objects(crd)[0]
	resource, err := c.resource(o)
	c.must(err)
	testutil.WaitFor(c.t, 3*soon, o.GetName()+" to be gone", func() bool {
		_, err := resource.Get(c.t.Context(), o.GetName(), metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// eventsOn are the lines that kubectl has about an object of the namespace shop.
func (m *missing) eventsOn(object string) (lines []string) {
	m.t.Helper()
	kubeconfig, err := m.plane.AdminKubeconfig()
	m.must(err)
	ctx, cancel := context.WithTimeout(m.t.Context(), soon)
	defer cancel()
	out, err := m.control.Run(ctx, "", filepath.Join(binaries(m.t), "kubectl"), "--kubeconfig", kubeconfig,
		"events", "-n", "shop", "--for", object, "--no-headers")
	m.must(err)
	for line := range strings.Lines(out) {
		if strings.Contains(line, "Warning") || strings.Contains(line, "Normal") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// grantAllBut gives the agent its rights without those to the resources, and waits until the API server acts on it.
func (m *missing) grantAllBut(resources ...string) {
	m.t.Helper()
	for _, o := range m.objects(deployedRBAC(m.t)) {
		if o.GetKind() == "ClusterRole" {
			m.must(without(o, resources), m.applyObject(o))
		}
	}
	for _, r := range rights {
		may := !slices.Contains(resources, r.resource)
		testutil.WaitFor(m.t, soon, fmt.Sprintf("the right to %s to be %v", r.resource, may), func() bool {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: agentUser, Groups: []string{"system:authenticated"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{Group: r.group, Resource: r.resource, Verb: "list"},
			}}
			answer, err := m.cluster.client.AuthorizationV1().SubjectAccessReviews().Create(m.t.Context(), review, metav1.CreateOptions{})
			return err == nil && answer.Status.Allowed == may
		})
	}
}

// without takes resources out of the rules of a role.
func without(role *unstructured.Unstructured, resources []string) error {
	rules, _, err := unstructured.NestedSlice(role.Object, "rules")
	if err != nil {
		return err
	}
	var left []any
	for _, rule := range rules {
		fields := rule.(map[string]any)
		all, _, err := unstructured.NestedStringSlice(fields, "resources")
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(all, func(r string) bool { return slices.Contains(resources, r) })
		if len(all) > 0 {
			if err := unstructured.SetNestedStringSlice(fields, all, "resources"); err != nil {
				return err
			}
			left = append(left, fields)
		}
	}
	return unstructured.SetNestedSlice(role.Object, left, "rules")
}
