package kinds

import (
	"encoding/json"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// conversion is what objects of one Go type mean, by the functions of package validate.
type conversion struct {
	typed  func(kind string, o runtime.Object) ([]model.Update, []validate.Problem, bool)
	custom func(kind string, o runtime.Object) ([]model.Update, []validate.Problem, bool)
	read   func(validate.TextRules, []byte, validate.Ref) ([]model.Update, []validate.Problem, bool)
	stored func(validate.TextRules, []byte, validate.Ref) ([]model.Update, []validate.Problem, bool) // nil: as read
	absent func(namespace, name string) []model.Update
	check  func(string) []string // the API server's rule for names
	// checkStored is the rule for names of objects that a datastore has checked; nil: check.
	checkStored func(string) []string
}

// of makes the conversion of objects of type T.
func of[T any, P interface {
	*T
	metav1.Object
}, U model.Update](checkName func(string) []string, convert func(P) (U, []validate.Problem, bool)) conversion {
	single := func(obj P) ([]model.Update, []validate.Problem, bool) {
		u, problems, ok := convert(obj)
		return one(u, problems, ok)
	}
	return conversion{
		check: checkName,
		typed: func(kind string, o runtime.Object) ([]model.Update, []validate.Problem, bool) {
			obj, ok := any(o).(P)
			if !ok {
				return nil, unexpected(kind, o), false
			}
			return single(obj)
		},
		custom: func(kind string, o runtime.Object) ([]model.Update, []validate.Problem, bool) {
			u, ok := o.(*unstructured.Unstructured)
			if !ok {
				return nil, unexpected(kind, o), false
			}
			obj := P(new(T))
			text, err := u.MarshalJSON()
			if err == nil {
				err = json.Unmarshal(text, obj)
			}
			if err != nil {
				ref := validate.Ref{Kind: kind, Namespace: u.GetNamespace(), Name: u.GetName()}
				return nil, []validate.Problem{{Ref: ref, Severity: validate.Rejected, Reason: fmt.Sprintf("cannot be decoded: %v", err)}}, false
			}
			return single(obj)
		},
		read: readBy(func() P { return new(T) }, func(_ []byte, obj P) ([]model.Update, []validate.Problem, bool) { return single(obj) }),
		absent: func(namespace, name string) []model.Update {
			obj := P(new(T))
			obj.SetNamespace(namespace)
			obj.SetName(name)
			u, _, _ := convert(obj)
			return []model.Update{model.Absent(u)}
		},
	}
}

// ofText is of, for a kind whose text is checked for more than the conversion of its objects checks: what the schema of a
// CRD sees to in a cluster.
func ofText[T any, P interface {
	*T
	metav1.Object
}, U model.Update](checkName func(string) []string, convert func(P) (U, []validate.Problem, bool),
	convertText func([]byte, P) (U, []validate.Problem, bool), convertStored func(P, []string) (U, []validate.Problem, bool)) conversion {
	c := of(checkName, convert)
	c.stored = storedBy(func() P { return new(T) }, convertStored)
	c.read = readBy(func() P { return new(T) }, func(text []byte, obj P) ([]model.Update, []validate.Problem, bool) {
		u, problems, ok := convertText(text, obj)
		return one(u, problems, ok)
	})
	return c
}

// ofStored is of, for a kind whose objects may have fields of a newer version of their API. MarkStored says which ones. The CRDs of these
// kinds check no names, so objects have all names that an API server stores.
func ofStored[T any, P interface {
	*T
	metav1.Object
	MarkStored(unknown []string)
}, U model.Update](checkName func(string) []string, convert func(P) (U, []validate.Problem, bool)) conversion {
	c := of(checkName, convert)
	c.checkStored = validate.DNSSubdomain
	c.stored = storedBy(func() P { return new(T) }, func(obj P, unknown []string) (U, []validate.Problem, bool) {
		obj.MarkStored(unknown)
		return convert(obj)
	})
	return c
}

// ofNetworkPolicies is of, for Kubernetes NetworkPolicies. Those of a cluster are decoded with care for fields that are not known
// here, as StoredNetworkPolicies.
func ofNetworkPolicies(checkName func(string) []string) conversion {
	c := of(checkName, validate.NetworkPolicy)
	c.stored = storedBy(func() *networkingv1.NetworkPolicy { return &networkingv1.NetworkPolicy{} }, validate.NetworkPolicyStored)
	c.typed = func(kind string, o runtime.Object) ([]model.Update, []validate.Problem, bool) {
		p, ok := o.(*validate.StoredNetworkPolicy)
		if !ok {
			return nil, unexpected(kind, o), false
		}
		return one(validate.NetworkPolicyOfServer(p))
	}
	return c
}

// storedBy makes the function that reads the text of an object that a datastore has checked.
func storedBy[T any, P interface {
	*T
	metav1.Object
}, U model.Update](empty func() P, convert func(obj P, unknown []string) (U, []validate.Problem, bool)) func(validate.TextRules, []byte, validate.Ref) ([]model.Update, []validate.Problem, bool) {
	return func(rules validate.TextRules, text []byte, ref validate.Ref) ([]model.Update, []validate.Problem, bool) {
		obj := empty()
		unknown, problems, ok := validate.DecodeStored(obj, rules, text, ref)
		if !ok {
			return nil, problems, false
		}
		return one(convert(obj, unknown))
	}
}

// one is the result of a conversion to one update.
func one[U model.Update](u U, problems []validate.Problem, ok bool) ([]model.Update, []validate.Problem, bool) {
	if !ok {
		return nil, problems, false
	}
	return []model.Update{u}, problems, true
}

// readBy makes the function that reads text. Of an object that can be decoded and not be used, the conversion finds
// further problems.
func readBy[P metav1.Object](empty func() P, convert func([]byte, P) ([]model.Update, []validate.Problem, bool)) func(validate.TextRules, []byte, validate.Ref) ([]model.Update, []validate.Problem, bool) {
	return func(rules validate.TextRules, text []byte, ref validate.Ref) ([]model.Update, []validate.Problem, bool) {
		obj := empty()
		problems, decoded, ok := validate.Decode(obj, rules, text, ref)
		if decoded && !ok {
			_, further, _ := convert(text, obj)
			problems = validate.WithConversion(problems, further)
		}
		if !ok {
			return nil, problems, false
		}
		return convert(text, obj)
	}
}

// typed makes a row of a kind that API servers serve as its Go type.
func (k Kind) typed(c conversion) Kind {
	if k.Types == nil {
		k.Types = &Types{}
	}
	return k.with(c, c.typed)
}

// careful is typed, for Go types that are not client-go's.
func (k Kind) careful(c conversion, object, list runtime.Object) Kind {
	k.Types = &Types{object, list}
	return k.typed(c)
}

// custom makes a row of a kind that a cluster may not serve. Its objects are decoded one by one, so that one that cannot
// be decoded is one problem.
func (k Kind) custom(c conversion) Kind {
	k.Optional = true
	return k.with(c, c.custom)
}

// strict makes a row like custom, whose objects are decoded with care for fields that are not known here: in a policy such a
// field may be a condition, without which the policy would be wider.
func (k Kind) strict(c conversion) Kind {
	k.Optional = true
	ref, rules := k.Ref, k.storedRules(c)
	return k.with(c, func(_ string, o runtime.Object) ([]model.Update, []validate.Problem, bool) {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			return nil, unexpected(ref, o), false
		}
		at := validate.Ref{Kind: ref, Namespace: u.GetNamespace(), Name: u.GetName()}
		text, err := u.MarshalJSON()
		if err != nil {
			return nil, []validate.Problem{{Ref: at, Severity: validate.Rejected, Reason: fmt.Sprintf("cannot be decoded: %v", err)}}, false
		}
		return c.readStored(rules, text, at)
	})
}

func (c conversion) readStored(rules validate.TextRules, text []byte, ref validate.Ref) ([]model.Update, []validate.Problem, bool) {
	if c.stored == nil {
		return c.read(rules, text, ref)
	}
	return c.stored(rules, text, ref)
}

func (k Kind) textRules(c conversion) validate.TextRules {
	return validate.TextRules{Namespaced: k.Namespaced, RejectUnknown: k.Policy, CheckName: c.check}
}

func (k Kind) storedRules(c conversion) validate.TextRules {
	rules := k.textRules(c)
	if c.checkStored != nil {
		rules.CheckName = c.checkStored
	}
	return rules
}

func (k Kind) with(c conversion, convert func(string, runtime.Object) ([]model.Update, []validate.Problem, bool)) Kind {
	name, rules, storedRules := k.Ref, k.textRules(c), k.storedRules(c)
	k.Convert = func(o runtime.Object) ([]model.Update, []validate.Problem, bool) { return convert(name, o) }
	k.Read = func(text []byte, ref validate.Ref) ([]model.Update, []validate.Problem, bool) {
		return c.read(rules, text, ref)
	}
	k.ReadStored = func(text []byte, ref validate.Ref) ([]model.Update, []validate.Problem, bool) {
		return c.readStored(storedRules, text, ref)
	}
	k.Absent = c.absent
	return k
}

// unexpected is the problem of an answer that is of another kind than the question.
func unexpected(kind string, o runtime.Object) []validate.Problem {
	p := validate.Problem{Ref: validate.Ref{Kind: kind}, Severity: validate.Rejected, Reason: fmt.Sprintf("the server sent a %T", o)}
	if m, err := meta.Accessor(o); err == nil {
		p.Ref.Namespace, p.Ref.Name = m.GetNamespace(), m.GetName()
	}
	return []validate.Problem{p}
}
