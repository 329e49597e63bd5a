package kubernetes

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/kube"
)

// api lists and watches one resource.
type api interface {
	// List calls do with each object of a list, and returns the metadata of the list. An error of do ends it.
	List(ctx context.Context, o metav1.ListOptions, do func(runtime.Object) error) (metav1.ListMeta, error)
	Watch(context.Context, metav1.ListOptions) (apiwatch.Interface, error)
	// streams reports whether the server is known to end the initial events of a streamed list.
	streams() bool
}

// openAPI makes a client for a resource of a kind.
func openAPI(c *kube.Client, gvr schema.GroupVersionResource, k kinds.Kind) (api, error) {
	switch {
	case k.Types == nil:
	case k.Types.Object == nil:
		client, err := c.REST(gvr.GroupVersion())
		return typedAPI{client, gvr.Resource}, err
	default:
		client, err := c.JSON(gvr.GroupVersion(), map[string]runtime.Object{k.Name: k.Types.Object, k.Name + "List": k.Types.List})
		return jsonAPI{typedAPI{client, gvr.Resource}, c, gvr, k.Types.Object}, err
	}
	client, err := c.Dynamic()
	if err != nil {
		return nil, err
	}
	return customAPI{c, client.Resource(gvr), gvr, k.Name}, nil
}

// typedAPI asks for a resource whose objects have a Go type.
type typedAPI struct {
	client   rest.Interface
	resource string
}

func (a typedAPI) List(ctx context.Context, o metav1.ListOptions, do func(runtime.Object) error) (of metav1.ListMeta, err error) {
	answer, err := a.client.Get().Resource(a.resource).VersionedParams(&o, metav1.ParameterCodec).MaxRetries(0).Do(ctx).Get()
	if err != nil {
		return of, err
	}
	m, err := meta.ListAccessor(answer)
	if err != nil {
		return of, err
	}
	of.ResourceVersion, of.Continue, of.RemainingItemCount = m.GetResourceVersion(), m.GetContinue(), m.GetRemainingItemCount()
	return of, meta.EachListItem(answer, do)
}

func (a typedAPI) Watch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	o.Watch = true
	return a.client.Get().Resource(a.resource).VersionedParams(&o, metav1.ParameterCodec).MaxRetries(0).Watch(ctx)
}

func (a typedAPI) streams() bool { return true }

// jsonAPI asks for a resource whose objects have a Go type of our own. Lists that a server does not stream are read object by object: tenants
// may have made large ones.
type jsonAPI struct {
	typedAPI
	all   *kube.Client
	gvr   schema.GroupVersionResource
	empty runtime.Object
}

func (a jsonAPI) List(ctx context.Context, o metav1.ListOptions, do func(runtime.Object) error) (metav1.ListMeta, error) {
	return a.all.Each(ctx, a.gvr, o, func(text []byte) error {
		object := a.empty.DeepCopyObject()
		if err := json.Unmarshal(text, object); err != nil {
			return err
		}
		return do(object)
	})
}

// customAPI asks for a resource of any kind. Not every server behind the cluster's can stream lists, so they are asked for as of old
// and read object by object.
type customAPI struct {
	client   *kube.Client
	resource dynamic.ResourceInterface
	gvr      schema.GroupVersionResource
	kind     string
}

func (a customAPI) List(ctx context.Context, o metav1.ListOptions, do func(runtime.Object) error) (metav1.ListMeta, error) {
	return a.client.Each(ctx, a.gvr, o, func(text []byte) error {
		u := &unstructured.Unstructured{}
		if err := utiljson.Unmarshal(text, &u.Object); err != nil {
			return err
		}
		if u.GetKind() == "" && u.GetAPIVersion() == "" { // as of servers that are not made of CRDs
			u.SetGroupVersionKind(a.gvr.GroupVersion().WithKind(a.kind))
		}
		return do(u)
	})
}

func (a customAPI) Watch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	return a.resource.Watch(ctx, o)
}

func (a customAPI) streams() bool { return false }
