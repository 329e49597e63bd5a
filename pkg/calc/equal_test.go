package calc

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

// fullRule has every field set, and shares nothing with another call's.
func fullRule() model.MatchRule {
	proto, not, code := uint8(6), uint8(17), uint8(1)
	side := func() model.Side {
		ports := func() *model.PortMatch {
			return &model.PortMatch{Ranges: []model.PortRange{{Lo: 1, Hi: 2}}, Named: []model.PortSet{{Protocol: 6, Port: 80, Set: "n:x"}}}
		}
		return model.Side{In: []model.SetID{"s:a"}, NotIn: []model.SetID{"s:b"}, Ports: ports(), NotPorts: ports(),
			Nets: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, NotNets: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}
	}
	return model.MatchRule{Action: model.Allow, Index: 3, Name: "a", IPVersion: 4, Protocol: &proto, NotProtocol: &not, Unmatchable: "why",
		ICMP: &model.ICMPMatch{Type: 8, Code: &code}, NotICMP: &model.ICMPMatch{Type: 3, Code: &code}, Source: side(), Destination: side()}
}

// TestEveryFieldOfARuleCounts changes each value reachable from a rule, one at a time: none may go unnoticed, those
// added to the model later included.
func TestEveryFieldOfARuleCounts(t *testing.T) {
	if a, b := fullRule(), fullRule(); !equalRules([]model.MatchRule{a}, []model.MatchRule{b}) {
		t.Fatal("equal rules are not equal")
	}
	if equalRules([]model.MatchRule{fullRule()}, nil) {
		t.Error("a rule equals none")
	}
	leaves := 0
	walkLeaves(reflect.ValueOf(new(fullRule())).Elem(), "rule", func(string, reflect.Value) { leaves++ })
	if leaves < 30 {
		t.Fatalf("only %d values in a full rule: a field is not set", leaves)
	}
	for i := range leaves {
		changed, n, path := fullRule(), 0, ""
		walkLeaves(reflect.ValueOf(&changed).Elem(), "rule", func(at string, v reflect.Value) {
			if n == i {
				change(v)
				path = at
			}
			n++
		})
		if equalRules([]model.MatchRule{fullRule()}, []model.MatchRule{changed}) {
			t.Errorf("a change of %s goes unnoticed", path)
		}
	}
}

// walkLeaves calls f for every value, and every pointer and list that could be nil.
func walkLeaves(v reflect.Value, path string, f func(string, reflect.Value)) {
	switch {
	case v.Type() == reflect.TypeFor[netip.Prefix]():
		f(path, v)
	case v.Kind() == reflect.Pointer:
		f(path+" (nil)", v)
		if !v.IsNil() {
			walkLeaves(v.Elem(), path, f)
		}
	case v.Kind() == reflect.Slice:
		f(path+" (nil)", v)
		for i := range v.Len() {
			walkLeaves(v.Index(i), path, f)
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			walkLeaves(v.Field(i), path+"."+v.Type().Field(i).Name, f)
		}
	default:
		f(path, v)
	}
}

func change(v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[netip.Prefix](), v.Kind() == reflect.Pointer, v.Kind() == reflect.Slice:
		v.SetZero()
	case v.CanUint():
		v.SetUint(v.Uint() + 1)
	case v.CanInt():
		v.SetInt(v.Int() + 1)
	case v.Kind() == reflect.String:
		v.SetString(v.String() + "x")
	}
}
