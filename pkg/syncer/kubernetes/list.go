package kubernetes

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/kube"
)

// api lists and watches one resource.
type api interface {
	List(context.Context, metav1.ListOptions) (runtime.Object, error)
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
		return typedAPI{client, gvr.Resource}, err
	}
	client, err := c.Dynamic()
	if err != nil {
		return nil, err
	}
	return customAPI{client.Resource(gvr)}, nil
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

// customAPI asks for a resource of any kind. There are few objects of these, so nothing is lost by lists that are not
// streamed, which not every server behind the cluster's can do.
type customAPI struct{ resource dynamic.ResourceInterface }

func (a customAPI) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	return a.resource.List(ctx, o)
}

func (a customAPI) Watch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	return a.resource.Watch(ctx, o)
}

func (a customAPI) streams() bool { return false }
