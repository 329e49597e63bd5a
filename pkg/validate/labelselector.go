package validate

import (
	"cmp"
	"maps"
	"slices"

	"github.com/margay-project/margay/pkg/selector"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LabelSelector returns the selector that matches what a valid Kubernetes label selector matches. Spellings that mean
// the same by their form (order, repetition, In with one value) give the same text, so that rules share sets.
func LabelSelector(ls *metav1.LabelSelector) *selector.Selector {
	var parts []*selector.Selector
	for _, key := range slices.Sorted(maps.Keys(ls.MatchLabels)) {
		parts = append(parts, selector.Equal(key, ls.MatchLabels[key]))
	}
	for _, e := range ls.MatchExpressions {
		parts = append(parts, requirement(e))
	}
	slices.SortFunc(parts, func(a, b *selector.Selector) int { return cmp.Compare(a.String(), b.String()) })
	return selector.And(slices.CompactFunc(parts, (*selector.Selector).Equal)...)
}

// requirement converts one match expression. As in Kubernetes, NotIn matches where the label is absent.
func requirement(e metav1.LabelSelectorRequirement) *selector.Selector {
	values := slices.Compact(slices.Sorted(slices.Values(e.Values)))
	switch e.Operator {
	case metav1.LabelSelectorOpIn:
		if len(values) == 1 {
			return selector.Equal(e.Key, values[0])
		}
		return selector.In(e.Key, values...)
	case metav1.LabelSelectorOpNotIn:
		if len(values) == 1 {
			return selector.NotEqual(e.Key, values[0])
		}
		return selector.NotIn(e.Key, values...)
	case metav1.LabelSelectorOpDoesNotExist:
		return selector.Not(selector.Has(e.Key))
	default: // Exists; validation lets nothing else through
		return selector.Has(e.Key)
	}
}
