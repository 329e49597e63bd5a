package events

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/validate"
)

// eventResource is the resource of Events.
var eventResource = schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}

// resources are the kinds that can have problems.
var resources = kinds.All(validate.Pods{})

// kindName is a kind of a validate.Ref without its group.
func kindName(kind string) string {
	name, _, _ := strings.Cut(kind, ".")
	return name
}

// resourceOf finds a kind as a validate.Ref has it: "Pod", "NetworkPolicy.projectcalico.org". Without a group the first
// kind of the name is meant.
func resourceOf(kind string) (kinds.Kind, bool) {
	name, group, grouped := strings.Cut(kind, ".")
	i := slices.IndexFunc(resources, func(k kinds.Kind) bool {
		return k.Ref == kind || k.Name == name && (!grouped || slices.ContainsFunc(k.Versions, func(gv schema.GroupVersion) bool { return gv.Group == group }))
	})
	if i < 0 {
		return kinds.Kind{}, false
	}
	return resources[i], true
}
