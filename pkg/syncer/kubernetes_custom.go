package syncer

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/margay-project/margay/pkg/kube"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// The groups of Calico's kinds: an API server behind the cluster's, and plain CRDs. Both give the same objects, so where
// both are served the first is read.
var calicoVersions = []schema.GroupVersion{
	{Group: "projectcalico.org", Version: "v3"},
	{Group: "crd.projectcalico.org", Version: "v1"},
}

// custom makes the spec of a Calico kind, which a cluster may not serve at all. Its objects are decoded one by one, so
// that one that cannot be is one problem.
func custom[T any, U model.Update](name, resource string, convert func(*T) (U, []validate.Problem, bool), absent func(objectKey) model.Update) kindSpec {
	spec := kindSpec{name: name, optional: true, absent: absent,
		open: func(c *kube.Client, gvr schema.GroupVersionResource) (api, error) {
			client, err := c.Dynamic()
			if err != nil {
				return nil, err
			}
			return customAPI{client.Resource(gvr)}, nil
		},
		convert: func(o runtime.Object) (model.Update, []validate.Problem, bool) {
			u, ok := o.(*unstructured.Unstructured)
			if !ok {
				return nil, []validate.Problem{unexpected(name, o)}, false
			}
			obj := new(T)
			text, err := u.MarshalJSON()
			if err == nil {
				err = json.Unmarshal(text, obj)
			}
			if err != nil {
				return nil, []validate.Problem{{
					Ref:      validate.Ref{Kind: name, Namespace: u.GetNamespace(), Name: u.GetName()},
					Severity: validate.Rejected, Reason: fmt.Sprintf("cannot be decoded: %v", err),
				}}, false
			}
			update, problems, ok := convert(obj)
			return update, problems, ok
		},
	}
	for _, gv := range calicoVersions {
		spec.candidates = append(spec.candidates, gv.WithResource(resource))
	}
	return spec
}

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
