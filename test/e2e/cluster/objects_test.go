package cluster

import (
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

// fieldManager owns the fields that tests apply.
const fieldManager = "margay-e2e"

// apply puts the objects of a manifest in place by server-side apply, in order.
func (c *cluster) apply(manifest string) {
	c.t.Helper()
	for _, o := range c.objects(manifest) {
		if err := c.applyObject(o); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) applyObject(o *unstructured.Unstructured) error {
	resource, err := c.resource(o)
	if err != nil {
		return err
	}
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	if _, err := resource.Apply(c.t.Context(), o.GetName(), o, options); err != nil {
		return fmt.Errorf("apply %s %s/%s: %w", o.GetKind(), o.GetNamespace(), o.GetName(), err)
	}
	return nil
}

// delete deletes the objects of a manifest, of which only kinds and names count, and does not wait until they are gone.
// One that is not there is no error.
func (c *cluster) delete(manifest string) {
	c.t.Helper()
	for _, o := range c.objects(manifest) {
		resource, err := c.resource(o)
		c.must(err)
		if err := resource.Delete(c.t.Context(), o.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			c.t.Fatalf("delete %s %s/%s: %v", o.GetKind(), o.GetNamespace(), o.GetName(), err)
		}
	}
}

// objects decodes the documents of a manifest.
func (c *cluster) objects(manifest string) (all []*unstructured.Unstructured) {
	c.t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		c.must(err)
		if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
}

// resource is the client for the object's kind, in its namespace.
func (c *cluster) resource(o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	c.mapping.Lock()
	defer c.mapping.Unlock()
	kind := o.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) { // a CRD may have come since
		c.mapper.Reset()
		mapping, err = c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("find the resource of %s: %w", kind, err)
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return c.dynamic.Resource(mapping.Resource), nil
	}
	namespace := o.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return c.dynamic.Resource(mapping.Resource).Namespace(namespace), nil
}

// namespace makes a namespace with labels such as "team: a", or gives an existing one these instead, and waits until
// pods can be made in it.
func (c *cluster) namespace(name string, labels ...string) {
	c.t.Helper()
	c.apply(fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {%s}}\n", name, strings.Join(labels, ", ")))
	testutil.WaitFor(c.t, soon, "the default service account of "+name, func() bool {
		_, err := c.client.CoreV1().ServiceAccounts(name).Get(c.t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
}

// podSpec says what a pod is like beyond its name.
type podSpec struct {
	node        string   // empty: where the scheduler puts it
	labels      []string // such as "app: web"; default: app is the name
	ports       []uint16 // TCP and UDP; default 80
	annotations []string // such as kubelet.AnnotationLinger + `: "2s"`
	hostNetwork bool
	extra       []string // further fields of spec, such as "serviceAccountName: web"
}

func (s podSpec) manifest(namespace, name string) string {
	if s.labels == nil {
		s.labels = []string{"app: " + name}
	}
	if s.ports == nil {
		s.ports = []uint16{80}
	}
	var ports []string
	for _, p := range s.ports {
		ports = append(ports, fmt.Sprintf("{name: tcp-%[1]d, containerPort: %[1]d}, {name: udp-%[1]d, containerPort: %[1]d, protocol: UDP}", p))
	}
	fields := append([]string{fmt.Sprintf("containers: [{name: main, image: none, ports: [%s]}]", strings.Join(ports, ", "))}, s.extra...)
	if s.node != "" { // the scheduler's business all the same
		fields = append(fields, fmt.Sprintf("nodeSelector: {kubernetes.io/hostname: %s}", s.node))
	}
	if s.hostNetwork {
		fields = append(fields, "hostNetwork: true")
	}
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: %s, labels: {%s}, annotations: {%s}}\nspec: {%s}\n",
		name, namespace, strings.Join(s.labels, ", "), strings.Join(s.annotations, ", "), strings.Join(fields, ", "))
}

// pod makes a pod on a node, labelled app: name unless labels say otherwise, serving TCP and UDP on port 80, waits until
// it runs and, if its node has an agent, until that enforces it.
func (c *cluster) pod(namespace, name, node string, labels ...string) *lab.Pod {
	c.t.Helper()
	return c.podOf(namespace, name, podSpec{node: node, labels: labels})
}

// podOf is pod with more to say. A pod of the host's network has none of its own: nil.
func (c *cluster) podOf(namespace, name string, s podSpec) *lab.Pod {
	c.t.Helper()
	c.apply(s.manifest(namespace, name))
	p := c.awaitRunning(namespace, name)
	if p != nil {
		if a := c.agentOf(p); a != nil && a.running != nil {
			c.awaitEnforced(p)
		}
	}
	return p
}

// awaitRunning waits until the API says that the pod runs and returns it.
func (c *cluster) awaitRunning(namespace, name string) *lab.Pod {
	c.t.Helper()
	return c.lookup(c.awaitPod(namespace, name, "to be ready", func(p *corev1.Pod) bool {
		for _, condition := range p.Status.Conditions {
			if condition.Type == corev1.PodReady {
				return condition.Status == corev1.ConditionTrue
			}
		}
		return false
	}))
}

// awaitPod waits until the API says that the pod is as it should be.
func (c *cluster) awaitPod(namespace, name, what string, as func(*corev1.Pod) bool) *corev1.Pod {
	c.t.Helper()
	var p *corev1.Pod
	testutil.WaitFor(c.t, soon, "pod "+namespace+"/"+name+" "+what, func() bool {
		var err error
		p, err = c.client.CoreV1().Pods(namespace).Get(c.t.Context(), name, metav1.GetOptions{})
		return err == nil && as(p)
	})
	return p
}

// lookup is the pod in the lab; nil if it is of the host's network, or has lost its own.
func (c *cluster) lookup(p *corev1.Pod) *lab.Pod {
	for _, n := range c.nodes {
		if n.Name() == p.Spec.NodeName {
			return n.Pod(p.Namespace, p.Name)
		}
	}
	return nil
}

// deletePod deletes a pod and waits until it is gone from the API, and so from the lab.
func (c *cluster) deletePod(namespace, name string) {
	c.t.Helper()
	c.must(c.client.CoreV1().Pods(namespace).Delete(c.t.Context(), name, metav1.DeleteOptions{}))
	testutil.WaitFor(c.t, soon, "pod "+namespace+"/"+name+" to be gone", func() bool {
		_, err := c.client.CoreV1().Pods(namespace).Get(c.t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// labelPod changes labels of a pod by a merge patch such as {"app":"db","old":null}.
func (c *cluster) labelPod(namespace, name, labels string) {
	c.t.Helper()
	c.patch(namespace, name, `{"metadata":{"labels":`+labels+`}}`)
}

// annotatePod changes annotations of a pod likewise.
func (c *cluster) annotatePod(namespace, name, annotations string) {
	c.t.Helper()
	c.patch(namespace, name, `{"metadata":{"annotations":`+annotations+`}}`)
}

func (c *cluster) patch(namespace, name, patch string) {
	c.t.Helper()
	_, err := c.client.CoreV1().Pods(namespace).Patch(c.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	c.must(err)
}

// policy puts a NetworkPolicy in place; spec is in YAML's flow style.
func (c *cluster) policy(namespace, name, spec string) {
	c.t.Helper()
	c.apply(fmt.Sprintf("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: %s, namespace: %s}\nspec: %s\n",
		name, namespace, spec))
}

func (c *cluster) deletePolicy(namespace, name string) {
	c.t.Helper()
	c.must(c.client.NetworkingV1().NetworkPolicies(namespace).Delete(c.t.Context(), name, metav1.DeleteOptions{}))
}

// service makes a dual-stack Service of TCP and UDP port 80 for the pods with the label, such as "app: web", with
// further fields of spec, and returns its addresses, IPv4 first.
func (c *cluster) service(namespace, name, selector string, extra ...string) *corev1.Service {
	c.t.Helper()
	fields := append([]string{
		"ipFamilyPolicy: RequireDualStack", "ipFamilies: [IPv4, IPv6]", "selector: {" + selector + "}",
		"ports: [{name: tcp, port: 80}, {name: udp, port: 80, protocol: UDP}]",
	}, extra...)
	c.apply(fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: %s}\nspec: {%s}\n",
		name, namespace, strings.Join(fields, ", ")))
	s, err := c.client.CoreV1().Services(namespace).Get(c.t.Context(), name, metav1.GetOptions{})
	c.must(err)
	return s
}
