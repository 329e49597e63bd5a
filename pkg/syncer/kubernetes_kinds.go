package syncer

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/margay-project/margay/pkg/kube"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// kindSpec is how the objects of one kind are asked for and read.
type kindSpec struct {
	name     string // as validate.Ref has it
	required bool   // nothing is in sync before its first list
	// candidates are where the kind is served, in order of preference. A kind with optional set may be served nowhere.
	candidates []schema.GroupVersionResource
	optional   bool

	open    func(*kube.Client, schema.GroupVersionResource) (api, error)
	convert func(runtime.Object) (model.Update, []validate.Problem, bool)
	absent  func(objectKey) model.Update
}

// api lists and watches one resource.
type api interface {
	List(context.Context, metav1.ListOptions) (runtime.Object, error)
	Watch(context.Context, metav1.ListOptions) (apiwatch.Interface, error)
	// streams reports whether the server is known to end the initial events of a streamed list.
	streams() bool
}

// kubeKinds are the kinds that are read, in the order of Kinds. A new one is one line here.
var kubeKinds = []kindSpec{
	typed("Namespace", required, corev1.SchemeGroupVersion.WithResource("namespaces"), validate.Namespace),
	typed("Node", supplementary, corev1.SchemeGroupVersion.WithResource("nodes"), validate.Node),
	pods(validate.NoAnnotator),
	typed("Service", required, corev1.SchemeGroupVersion.WithResource("services"), validate.Service),
	typed("ServiceAccount", supplementary, corev1.SchemeGroupVersion.WithResource("serviceaccounts"), validate.ServiceAccount),
	typed("EndpointSlice", supplementary, discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), validate.EndpointSlice),
	typed("NetworkPolicy", required, networkingv1.SchemeGroupVersion.WithResource("networkpolicies"), validate.NetworkPolicy),
	custom("FelixConfiguration", "felixconfigurations", validate.FelixConfiguration,
		func(name objectKey) model.Update { return model.ConfigurationUpdate{Name: name.name} }),
}

const podsKind = "Pod"

// pods are Pods, read with the annotations of a CNI plugin.
func pods(a validate.Annotator) kindSpec {
	return typed(podsKind, required, corev1.SchemeGroupVersion.WithResource("pods"), a.Pod)
}

const (
	required      = true
	supplementary = false
)

// typed makes the spec of a kind that every API server serves and whose objects are of type T.
func typed[T any, P interface {
	*T
	metav1.Object
	runtime.Object
}, U model.Update](name string, required bool, gvr schema.GroupVersionResource, convert func(P) (U, []validate.Problem, bool)) kindSpec {
	return kindSpec{
		name: name, required: required, candidates: []schema.GroupVersionResource{gvr},
		open: func(c *kube.Client, gvr schema.GroupVersionResource) (api, error) {
			client, err := c.REST(gvr.GroupVersion())
			return typedAPI{client, gvr.Resource}, err
		},
		convert: func(o runtime.Object) (model.Update, []validate.Problem, bool) {
			obj, ok := o.(P)
			if !ok {
				return nil, []validate.Problem{unexpected(name, o)}, false
			}
			u, problems, ok := convert(obj)
			return u, problems, ok
		},
		absent: func(name objectKey) model.Update {
			obj := P(new(T))
			obj.SetNamespace(name.namespace)
			obj.SetName(name.name)
			u, _, _ := convert(obj)
			return model.Absent(u)
		},
	}
}

// unexpected is the problem of an answer that is of another kind than the question.
func unexpected(kind string, o runtime.Object) validate.Problem {
	p := validate.Problem{Ref: validate.Ref{Kind: kind}, Severity: validate.Rejected, Reason: fmt.Sprintf("the server sent a %T", o)}
	if key, err := named(o); err == nil {
		p.Ref.Namespace, p.Ref.Name = key.name.namespace, key.name.name
	}
	return p
}

// typedAPI asks for a resource whose objects have a Go type.
type typedAPI struct {
	client   rest.Interface
	resource string
}

func (a typedAPI) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	return a.client.Get().Resource(a.resource).VersionedParams(&o, metav1.ParameterCodec).MaxRetries(0).Do(ctx).Get()
}

func (a typedAPI) Watch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	o.Watch = true
	return a.client.Get().Resource(a.resource).VersionedParams(&o, metav1.ParameterCodec).MaxRetries(0).Watch(ctx)
}

func (a typedAPI) streams() bool { return true }
