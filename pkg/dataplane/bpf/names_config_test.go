package bpf

import (
	"reflect"
	"strings"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/dataplane"
)

// A value of the configuration has one name, in Go and in C. What C has besides is computed, read from the kernel, or set for a switch to
// another dataplane.
func TestProgramsNameTheConfigurationAsGoDoes(t *testing.T) {
	configured := map[string]bool{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[dataplane.Config]()) {
		configured[strings.ToLower(f.Name)] = true
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[dataplane.Timeouts]()) {
		configured["timeout"+strings.ToLower(f.Name)] = true
	}
	computed := map[string]string{
		"MarkSeen": "MarkMask", "MarkJudge": "MarkMask", "MarkOwn": "MarkMask", "InterfacePrefixLen": "InterfacePrefix",
		"Hz": "the kernel", "EndShortcut": "a switch", "OpenShare": "MapSizes", "OpenCommon": "MapSizes", "HalfShare": "MapSizes", "HalfCommon": "MapSizes",
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[bpf.Config]()) {
		of, isComputed := computed[f.Name]
		switch {
		case f.Name == "_":
		case isComputed && of != "the kernel" && of != "a switch" && !configured[strings.ToLower(of)]:
			t.Errorf("%s is computed from %s, which is not configured", f.Name, of)
		case !isComputed && !configured[strings.ToLower(f.Name)]:
			t.Errorf("field %s of bpf.Config has another name in dataplane.Config", f.Name)
		}
	}
}
