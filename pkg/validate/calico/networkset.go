package calico

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// ConvertNetworkSet returns a NetworkSet, which inherits the labels of its namespace.
func ConvertNetworkSet(o *NetworkSet) (model.NetworkSetUpdate, []validate.Problem, bool) {
	rep := validate.NewReport(validate.Ref{Kind: "NetworkSet", Namespace: o.Namespace, Name: o.Name})
	set := networkSet(rep, o)
	set.Labels[validate.LabelNamespace] = o.Namespace
	set.Profiles = []string{model.NamespaceProfile(o.Namespace)}
	id := model.NetworkSetID{Namespace: o.Namespace, Name: o.Name}
	return model.NetworkSetUpdate{ID: id, Set: set}, rep.Done(), rep.OK()
}

// ConvertGlobalNetworkSet returns a GlobalNetworkSet.
func ConvertGlobalNetworkSet(o *NetworkSet) (model.NetworkSetUpdate, []validate.Problem, bool) {
	rep := validate.NewReport(validate.Ref{Kind: "GlobalNetworkSet", Name: o.Name})
	set := networkSet(rep, o)
	return model.NetworkSetUpdate{ID: model.NetworkSetID{Name: o.Name}, Set: set}, rep.Done(), rep.OK()
}

func networkSet(rep *validate.Report, o *NetworkSet) *model.NetworkSet {
	set := &model.NetworkSet{Labels: ownLabels(rep, labelsOf(rep, &o.Object), 1)}
	if len(o.Spec.Nets) > 0 {
		set.Nets = make([]netip.Prefix, 0, len(o.Spec.Nets)) // there may be very many, and they are kept
	}
	for i, text := range o.Spec.Nets {
		n, wrong := network(text)
		if wrong != "" {
			rep.Add(validate.Rejected, "spec.nets["+strconv.Itoa(i)+"]", "%q %s", text, wrong)
			continue
		}
		set.Nets = append(set.Nets, n)
	}
	slices.SortFunc(set.Nets, netip.Prefix.Compare)
	set.Nets = slices.Compact(set.Nets)
	usedWithout(rep, &o.Object, "set")
	return set
}

// annotationMetadata is where Calico keeps the metadata of its API in objects of crd.projectcalico.org/v1: newer releases the labels,
// too, which then are not labels of the object.
const annotationMetadata = "projectcalico.org/metadata"

// labelsOf returns the labels that an object has, wherever they are written. Those of the annotation win.
func labelsOf(rep *validate.Report, o *Object) map[string]string {
	text, kept := o.Annotations[annotationMetadata]
	if !kept || !isOfOldGroup(o) {
		return o.Labels
	}
	var metadata struct {
		Labels map[string]string `json:"labels"`
	}
	if err := json.Unmarshal([]byte(text), &metadata); err != nil {
		rep.Add(validate.Rejected, "metadata.annotations["+annotationMetadata+"]", "the labels that Calico keeps there cannot be read: %v", err)
		return o.Labels
	}
	labels := make(map[string]string, len(o.Labels)+len(metadata.Labels))
	maps.Copy(labels, o.Labels)
	maps.Copy(labels, metadata.Labels)
	return labels
}

// isOfOldGroup reports whether an object is of crd.projectcalico.org.
func isOfOldGroup(o *Object) bool {
	group, _, _ := strings.Cut(o.APIVersion, "/")
	return group == "crd.projectcalico.org"
}

// ownLabels returns the labels that an object may give itself, with room for more. Those that say to which namespace,
// service account or orchestrator something belongs are not an author's to give: with them a set could pass for the pods
// of another tenant.
func ownLabels(rep *validate.Report, labels map[string]string, more int) map[string]string {
	own := validate.OwnLabels(labels, more)
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		_, isOwn := own[key]
		switch {
		case key == validate.LabelNamespace:
			rep.Add(validate.Rejected, labelPath(key), "the label belongs to the namespace that an object is in; take it out")
			delete(own, key)
		case !isOwn, key == validate.LabelOrchestrator, key == validate.LabelServiceAccount:
			rep.Add(validate.Warning, labelPath(key), "ignored: the label belongs to pods, their namespaces and service accounts")
			delete(own, key)
		}
	}
	return own
}

func labelPath(key string) string { return "metadata.labels[" + key + "]" }

// network reads an address, or a prefix, which is masked. wrong describes the error; empty: there is none.
func network(text string) (n netip.Prefix, wrong string) {
	if !strings.Contains(text, "/") {
		a, ok := validate.ParseAddr(text)
		if !ok {
			return n, "is not an address or a CIDR"
		}
		return netip.PrefixFrom(a, a.BitLen()), ""
	}
	n, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return n, "is not an address or a CIDR"
	case n.Addr().Is4In6():
		return n, "is an IPv4-mapped CIDR, which no packet has; write it as IPv4"
	}
	return n.Masked(), ""
}
