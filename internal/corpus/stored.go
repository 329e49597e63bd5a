package corpus

import (
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/margay-project/margay/internal/oracle"
	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/validate"
)

// parseStored reads one object as a datastore has it, which may have fields of a newer version of its API.
func parseStored(name string, data []byte) []validate.Document {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   metadata
	}
	text, err := yaml.YAMLToJSON(data)
	if err == nil {
		err = yaml.Unmarshal(text, &head)
	}
	ref := validate.Ref{File: name, Kind: head.Kind, Namespace: head.Metadata.Namespace, Name: head.Metadata.Name}
	failed := func(why string) []validate.Document {
		return []validate.Document{{Ref: ref, Problems: []validate.Problem{{Ref: ref, Severity: validate.Rejected, Reason: why}}}}
	}
	if err != nil {
		return failed(err.Error())
	}
	for _, k := range kinds.Read(validate.Pods{}) {
		if k.Name == head.Kind && slices.ContainsFunc(k.Versions, func(v schema.GroupVersion) bool { return v.String() == head.APIVersion }) {
			updates, problems, ok := k.ReadStored(text, ref)
			return []validate.Document{{Ref: ref, Updates: updates, Problems: problems, OK: ok}}
		}
	}
	return failed(fmt.Sprintf("%s %s is no kind that is read", head.APIVersion, head.Kind))
}

// decodeStored is decodeInto for an object that may have fields that are not known. A policy of Calico remembers them.
func decodeStored[T any, P interface {
	*T
	metav1.Object
}](data []byte, list *[]P) error {
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		return err
	}
	v := P(new(T))
	odd, err := kjson.UnmarshalStrict(text, v)
	if err != nil {
		return err
	}
	policy, isPolicy := any(v).(*oracle.PolicyObject)
	for _, err := range odd {
		var at kjson.FieldError
		if !errors.As(err, &at) {
			return err
		}
		if isPolicy {
			policy.MarkUnknown(at.FieldPath())
		}
	}
	*list = replaced(*list, v)
	return nil
}
