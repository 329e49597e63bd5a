package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/test/e2e/cluster/controlplane"
	"github.com/margay-project/margay/test/e2e/cluster/process"
)

// apiServer is a control plane without nodes.
type apiServer struct {
	t       *testing.T
	client  *kubernetes.Clientset
	dynamic *dynamic.DynamicClient
	lists   []*metav1.APIResourceList
	kinds   map[schema.GroupVersionKind]metav1.APIResource
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	bin := binaries(t)
	dir, err := process.NewDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, process.RemoveDir(dir)) })
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, l.Close()) })
	host, err := l.AddExternal("control")
	if err != nil {
		t.Fatal(err)
	}
	plane, err := controlplane.Start(t.Context(), controlplane.Options{Bin: bin, Host: host, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, plane.Stop()) })
	a := &apiServer{t: t, client: kubernetes.NewForConfigOrDie(plane.Admin()), dynamic: dynamic.NewForConfigOrDie(plane.Admin()),
		kinds: map[schema.GroupVersionKind]metav1.APIResource{}}
	if _, a.lists, err = a.client.Discovery().ServerGroupsAndResources(); err != nil {
		t.Fatal(err)
	}
	for _, list := range a.lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") {
				a.kinds[gv.WithKind(r.Kind)] = r
			}
		}
	}
	return a
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// apply applies an object as `kubectl apply --server-side --validate=strict` does, and returns what the server makes of it.
func (a *apiServer) apply(o *unstructured.Unstructured, dryRun ...string) (*unstructured.Unstructured, error) {
	gvk := o.GroupVersionKind()
	r, known := a.kinds[gvk]
	if !known {
		return nil, fmt.Errorf("the API server serves no %s", gvk)
	}
	gvr := gvk.GroupVersion().WithResource(r.Name)
	text, err := runtime.Encode(unstructured.UnstructuredJSONScheme, o)
	if err != nil {
		return nil, err
	}
	force := true
	options := metav1.PatchOptions{FieldManager: "test", Force: &force, FieldValidation: metav1.FieldValidationStrict, DryRun: dryRun}
	if r.Namespaced {
		return a.dynamic.Resource(gvr).Namespace(o.GetNamespace()).Patch(a.t.Context(), o.GetName(), types.ApplyPatchType, text, options)
	}
	return a.dynamic.Resource(gvr).Patch(a.t.Context(), o.GetName(), types.ApplyPatchType, text, options)
}

// TestTheAPIServerTakesWhatIsDeployed: every rendering passes strict validation, dry and for real, and so do the pods.
func TestTheAPIServerTakesWhatIsDeployed(t *testing.T) {
	a := newAPIServer(t)
	for name, all := range renderings(t) {
		for key, o := range all {
			if o.GroupVersionKind().Group == "monitoring.coreos.com" {
				delete(all, key) // of the Prometheus operator, which is not there
				continue
			}
			_, err := a.apply(o, metav1.DryRunAll)
			if err == nil {
				all[key], err = a.apply(o)
			}
			if err != nil {
				t.Fatalf("%s: %s: %v", name, key, err)
			}
		}
		for _, o := range all {
			if o.GetKind() == "DaemonSet" {
				a.admit(name, o)
			}
		}
	}
	broken := kustomized(t, "base")["DaemonSet kube-system/margay"]
	if err := unstructured.SetNestedField(broken.Object, "all", "spec", "template", "spec", "tolerate"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.apply(broken, metav1.DryRunAll); err == nil {
		t.Error("the API server takes a field that does not exist: nothing was tested")
	}
}

// isOpened reports whether a port is another one than those of the node at which an agent answers, which no other pod may have.
func isOpened(p corev1.ContainerPort) bool {
	return p.Name != "health" && p.Name != "metrics" || p.HostPort != p.ContainerPort || p.Protocol != corev1.ProtocolTCP
}

// admit has a pod of the DaemonSet admitted, as its controller would ask for it.
func (a *apiServer) admit(name string, set *unstructured.Unstructured) {
	a.t.Helper()
	var template corev1.PodTemplateSpec
	raw, _, err := unstructured.NestedMap(set.Object, "spec", "template")
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &template)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.GenerateName = set.GetName() + "-"
	admitted, err := a.client.CoreV1().Pods(set.GetNamespace()).Create(a.t.Context(), pod, metav1.CreateOptions{
		DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		a.t.Errorf("%s: a pod of it: %v", name, err)
		return
	}
	if admitted.Spec.Priority == nil || *admitted.Spec.Priority < 2_000_000_000 {
		a.t.Errorf("%s: the pod's priority is %v", name, admitted.Spec.Priority)
	}
	for _, c := range append(admitted.Spec.InitContainers, admitted.Spec.Containers...) {
		s := c.SecurityContext
		if s == nil || s.Privileged != nil && *s.Privileged || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation ||
			s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.SeccompProfile == nil ||
			s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || slices.ContainsFunc(c.Ports, isOpened) {
			a.t.Errorf("%s: container %s may do more than it needs to: %+v", name, c.Name, s)
		}
	}
}

// may is what the service account may do with each resource the server serves, in a namespace or, for those outside
// all, in none: "verb resource". Rights that every service account has are left out.
func (a *apiServer) may(namespace, account string) []string {
	a.t.Helper()
	var all []string
	ask := func(account string, at authorizationv1.ResourceAttributes) bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:kube-system:" + account,
			Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"},
			ResourceAttributes: &at,
		}}
		answer, err := a.client.AuthorizationV1().SubjectAccessReviews().Create(a.t.Context(), review, metav1.CreateOptions{})
		if err != nil {
			a.t.Fatal(err)
		}
		return answer.Status.Allowed
	}
	for _, list := range a.lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			a.t.Fatal(err)
		}
		for _, r := range list.APIResources {
			resource, sub, _ := strings.Cut(r.Name, "/")
			for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"} {
				at := authorizationv1.ResourceAttributes{Verb: verb, Group: gv.Group, Version: gv.Version, Resource: resource, Subresource: sub}
				if r.Namespaced {
					at.Namespace = namespace
				}
				if ask(account, at) && !ask("nobody", at) {
					all = append(all, verb+" "+schema.GroupResource{Group: gv.Group, Resource: r.Name}.String())
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestTheAgentMayDoWhatItAsksForAndNothingElse asks the API server about everything it serves. That the agent gets by
// with this, the other tests of this package show: it runs as this service account in them.
func TestTheAgentMayDoWhatItAsksForAndNothingElse(t *testing.T) {
	a := newAPIServer(t)
	for _, group := range []string{"crd.projectcalico.org/v1", "projectcalico.org/v3"} {
		a.lists = append(a.lists, &metav1.APIResourceList{GroupVersion: group, APIResources: []metav1.APIResource{
			{Name: "felixconfigurations"}, {Name: "globalnetworkpolicies"}, {Name: "ippools"},
		}})
	}
	for _, o := range kustomized(t, "base") {
		if _, err := a.apply(o); err != nil {
			t.Fatal(err)
		}
	}
	var everywhere []string
	for _, resource := range []string{
		"endpointslices.discovery.k8s.io", "felixconfigurations.crd.projectcalico.org", "felixconfigurations.projectcalico.org",
		"globalnetworkpolicies.crd.projectcalico.org", "globalnetworkpolicies.projectcalico.org",
		"namespaces", "networkpolicies.networking.k8s.io", "nodes", "pods", "serviceaccounts", "services",
	} {
		for _, verb := range []string{"get", "list", "watch"} {
			everywhere = append(everywhere, verb+" "+resource)
		}
	}
	everywhere = append(everywhere, "create events.events.k8s.io")
	slices.Sort(everywhere)
	for _, namespace := range []string{"default", "kube-system"} {
		if diff := gocmp.Diff(everywhere, a.may(namespace, "margay")); diff != "" {
			t.Errorf("in %s, wanted (-), granted (+):\n%s", namespace, diff)
		}
	}
	if got := a.may("kube-system", "margay-cleanup"); len(got) > 0 {
		t.Errorf("an account without rights has some: %v", got)
	}
}
