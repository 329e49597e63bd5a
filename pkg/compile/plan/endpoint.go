package plan

import (
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// endpoint is one local endpoint.
type endpoint struct {
	id      model.EndpointID
	desired desired
	applied applied
	prior   [2]*program // its programs before the last plan, if others and kept; see Withhold
}

// desired is how an endpoint is to be.
type desired struct {
	policy   *model.EndpointPolicy // nil: it left
	folds    [2]*fold              // by direction; nil if policy is
	programs [2]*program           // nil if policy is, or if it could not be compiled and never could
}

// applied is how an endpoint is in the kernel, once the last plan is written.
type applied struct {
	policy   *model.EndpointPolicy // nil: it is not there
	programs [2]*program           // the programs that judge its packets; nil if policy is
}

func (e *endpoint) directionPolicy(d model.Direction) *model.DirectionPolicy {
	if d == model.Ingress {
		return e.desired.policy.Ingress
	}
	return e.desired.policy.Egress
}

// isAsDesired reports whether the kernel needs no other binding for the endpoint.
func (e *endpoint) isAsDesired() bool {
	is, want := e.applied.policy, e.desired.policy
	return is != nil && want != nil && e.applied.programs == e.desired.programs && is.Iface == want.Iface && slices.Equal(is.Addrs, want.Addrs) &&
		slices.Equal(is.Sources, want.Sources)
}

// isJudgedOtherwise reports whether other packets than in the kernel are to be the endpoint's, or others judge them.
func (e *endpoint) isJudgedOtherwise() bool {
	is, want := e.applied.policy, e.desired.policy
	return is == nil || e.applied.programs != e.desired.programs || is.Iface != want.Iface || !e.sameAddrs() ||
		is.Addrs != nil && !slices.Equal(is.Sources, want.Sources) // of an endpoint found in the kernel they are not known
}

// sameAddrs reports whether the endpoint still has the addresses that its applied programs were compiled for. For an
// endpoint found in the kernel that is not known.
func (e *endpoint) sameAddrs() bool {
	is := e.applied.policy
	return is != nil && (is.Addrs == nil || slices.Equal(is.Addrs, e.desired.policy.Addrs))
}
