package corpus

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/model"
)

// Steps are the states that a case's documents lead through: one of an object that was there replaces it. There is at
// least one.
func (c Case) Steps() [][]Document {
	var all [][]Document
	var now []Document
	for _, d := range c.Documents {
		i := slices.IndexFunc(now, d.SameObject)
		if i < 0 {
			now = append(now, d)
			continue
		}
		all = append(all, now)
		now = slices.Clone(now)
		now[i] = d
	}
	return append(all, now)
}

// WithoutPolicy is what the last of the steps holds beside policy.
func (c Case) WithoutPolicy() []Document {
	all := c.Steps()
	last := slices.Clone(all[len(all)-1])
	return slices.DeleteFunc(last, Document.IsPolicy)
}

// IsPolicy reports whether the manifest is one of a policy, or of what goes with them: a tier,
// a network set, or a profile.
func (d Document) IsPolicy() bool {
	return strings.HasSuffix(d.Kind, "NetworkPolicy") || strings.HasSuffix(d.Kind, "NetworkSet") || d.Kind == "Tier" || d.Kind == "Profile"
}

// OfCalico reports whether the manifest is of one of Calico's kinds, which have two groups.
func (d Document) OfCalico() bool { return strings.Contains(d.APIVersion, "projectcalico.org/") }

// SameObject reports whether both manifests are of one object.
func (d Document) SameObject(o Document) bool {
	return d.Kind == o.Kind && d.OfCalico() == o.OfCalico() && d.Namespace == o.Namespace && d.Name == o.Name
}

// Why a case is not played with real packets.
const (
	UnplayedModel    = "has kinds of margay.test/v1, which no datastore holds"
	UnplayedEndpoint = "has a WorkloadEndpoint, whose interface has a name that no pod of a lab has"
	UnplayedSource   = "has a packet from a further source, which is no address that a socket of the pod can have"
	// Of directories alone.
	UnplayedStored = "is as a datastore has it: a directory's object of this kind is rejected"
	// Of clusters alone.
	UnplayedUnknown  = "has a field that is not known: with it a cluster's object is in force in part, or refused"
	UnplayedReply    = "has an echo reply to no request, which kube-proxy's rules drop"
	UnplayedProfile  = "has a Profile, which no cluster serves"
	UnplayedNodePort = "has a NodePort, which hosts_test.go has there"
	UnplayedSlice    = "has an EndpointSlice of a Service that the cluster has with others"
)

// Unplayed says why the case cannot be played with real packets, from a directory or, if cluster says so, on a cluster;
// empty: it can.
func (c Case) Unplayed(cluster bool) string {
	has := func(is func(Document) bool) bool { return slices.ContainsFunc(c.Documents, is) }
	switch {
	case has(func(d Document) bool { return d.APIVersion == APIVersion }):
		return UnplayedModel
	case has(func(d Document) bool { return d.Kind == "WorkloadEndpoint" }):
		return UnplayedEndpoint
	case slices.ContainsFunc(c.Checks, func(k Check) bool { return k.FurtherSource }):
		return UnplayedSource
	case !cluster && has(func(d Document) bool { return d.Stored }):
		return UnplayedStored
	case cluster && has(func(d Document) bool { return d.Stored && !d.OfCalico() }),
		cluster && !has(func(d Document) bool { return d.Stored }) && slices.ContainsFunc(c.Problems, func(p string) bool { return strings.Contains(p, "unknown field") }):
		return UnplayedUnknown
	case cluster && slices.ContainsFunc(c.Checks, func(k Check) bool { return k.Packet.Protocol == model.ProtoICMP && k.Packet.ICMPType == 0 }):
		return UnplayedReply
	case cluster && has(func(d Document) bool { return d.Kind == "Profile" }):
		return UnplayedProfile
	case cluster && slices.ContainsFunc(c.Checks, func(k Check) bool { return k.NodePort }):
		return UnplayedNodePort
	case cluster && has(func(d Document) bool { return d.Kind == "EndpointSlice" }):
		return UnplayedSlice
	}
	return ""
}

// Spent is the policy as one that applies to no pod; not ok: it is none, or of a kind that has no such form.
func (d Document) Spent() (text string, ok bool) {
	spec := ""
	switch {
	case d.Kind == "ClusterNetworkPolicy":
		spec = "{tier: Admin, priority: 1, subject: {namespaces: {matchLabels: {margay-e2e: spent}}}, ingress: [{action: Pass, from: [{namespaces: {}}]}]}"
	case d.Kind == "StagedKubernetesNetworkPolicy", d.Kind == "NetworkPolicy" && !d.OfCalico():
		spec = "{podSelector: {matchLabels: {margay-e2e: spent}}}"
	case strings.HasSuffix(d.Kind, "NetworkPolicy"):
		spec = "{selector: margay-e2e == 'spent'}"
	default:
		return "", false
	}
	name := "name: " + d.Name
	if d.Namespace != "" {
		name += ", namespace: " + d.Namespace
	}
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {%s}\nspec: %s\n---\n", d.APIVersion, d.Kind, name, spec), true
}

// Manifest is the documents as one text.
func Manifest(docs []Document) string {
	var b strings.Builder
	for _, d := range docs {
		fmt.Fprintf(&b, "%s\n---\n", bytes.TrimSpace(d.Text))
	}
	return b.String()
}

// SameButForPolicy puts the cases together whose clusters differ in policies only.
func SameButForPolicy(cases []Case) [][]Case {
	var keys []string
	groups := map[string][]Case{}
	for _, c := range cases {
		key := Manifest(c.WithoutPolicy())
		if groups[key] == nil {
			keys = append(keys, key)
		}
		groups[key] = append(groups[key], c)
	}
	var out [][]Case
	for _, key := range keys {
		out = append(out, groups[key])
	}
	return out
}

// Denied are the checks that are to be denied.
func Denied(checks []Check) []Check {
	return slices.DeleteFunc(slices.Clone(checks), func(k Check) bool { return k.Allow })
}

// Endpoints are those that the case's updates leave, those without an address apart.
func (c Case) Endpoints() map[model.EndpointID]*model.Endpoint {
	last := map[model.EndpointID]*model.Endpoint{}
	for _, u := range c.Updates {
		u, ok := u.(model.EndpointUpdate)
		switch {
		case !ok:
		case u.Endpoint == nil || len(u.Endpoint.Addrs) == 0:
			delete(last, u.ID)
		default:
			last[u.ID] = u.Endpoint
		}
	}
	return last
}
