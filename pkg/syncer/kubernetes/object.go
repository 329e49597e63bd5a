package kubernetes

import (
	"hash/fnv"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// object holds the parts of a decoded API object that the Reflector and the store need. It represents the API object in
// everything the Reflector does.
type object struct {
	metav1.Object // for the methods that are never called

	name    objectKey
	version string // resourceVersion
	uid     uint32 // hashOf
	endOf   bool   // a bookmark that ends the initial events of a streamed list

	updates  []model.Update // none for what only names an object
	problems []validate.Problem
	ok       bool   // updates may be used
	shape    *shape // what updates share with those of other objects
}

// objectKey names an object of one kind.
type objectKey struct{ namespace, name string }

// hashOf is a hash of an object's UID; 0: it has none.
func hashOf(uid types.UID) uint32 {
	if uid == "" {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(uid)) // it cannot fail
	return max(h.Sum32(), 1)
}

// String is the name as messages have it, with the namespace if there is one.
func (k objectKey) String() string {
	if k.namespace == "" {
		return k.name
	}
	return k.namespace + "/" + k.name
}

// without is behind the methods of objects that are never called.
var without metav1.Object = &metav1.ObjectMeta{}

// named returns an object that says only which one it is.
func named(o runtime.Object) (*object, error) {
	m, err := meta.Accessor(o)
	if err != nil {
		return nil, err
	}
	return &object{
		Object:  without,
		name:    objectKey{m.GetNamespace(), m.GetName()},
		version: m.GetResourceVersion(),
		uid:     hashOf(m.GetUID()),
		endOf:   m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true",
	}, nil
}

// bookmark returns an object that says how far a watch has come.
func bookmark(version string) *object { return &object{Object: without, version: version} }

func (o *object) GetName() string            { return o.name.name }
func (o *object) GetNamespace() string       { return o.name.namespace }
func (o *object) GetResourceVersion() string { return o.version }

func (o *object) GetAnnotations() map[string]string {
	if o.endOf {
		return map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return nil
}

// GetObjectKind implements runtime.Object.
func (o *object) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. An object is never changed once it is made.
func (o *object) DeepCopyObject() runtime.Object { return o }

// number returns a resourceVersion as a number that is 0 if the text is no number: then nothing can be said about it.
func number(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
