package model_test

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

// A condition that is added to rules and forgotten in MatchesAll fails here.
func TestMatchesAllKnowsEveryCondition(t *testing.T) {
	none := []string{"Action", "Index", "Name"} // these are no conditions
	conditions := func(set func(i int) *model.MatchRule, of reflect.Type) {
		for i := range of.NumField() {
			name := of.Field(i).Name
			if got, want := set(i).MatchesAll(), of == reflect.TypeFor[model.MatchRule]() && slices.Contains(none, name); got != want {
				t.Errorf("a rule with %s.%s: MatchesAll is %v", of.Name(), name, got)
			}
		}
	}
	if !new(model.MatchRule).MatchesAll() {
		t.Error("a rule without a condition does not match all")
	}
	conditions(func(i int) *model.MatchRule {
		r := &model.MatchRule{}
		fill(t, reflect.ValueOf(r).Elem().Field(i))
		return r
	}, reflect.TypeFor[model.MatchRule]())
	conditions(func(i int) *model.MatchRule {
		r := &model.MatchRule{}
		fill(t, reflect.ValueOf(&r.Destination).Elem().Field(i))
		return r
	}, reflect.TypeFor[model.Side]())
	if r := (model.MatchRule{Source: model.Side{Nets: []netip.Prefix{}}}); r.MatchesAll() {
		t.Error("a rule with an empty list of prefixes matches all")
	}
}

// fill gives a field a value that is not its zero value.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.String:
		v.SetString("x")
	case reflect.Int, reflect.Int8:
		v.SetInt(1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(1)
	case reflect.Struct:
		fill(t, v.Field(0))
	default:
		t.Fatalf("a field of kind %s", v.Kind())
	}
}
