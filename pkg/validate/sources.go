package validate

import (
	"encoding/json"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/margay-project/margay/pkg/model"
	corev1 "k8s.io/api/core/v1"
)

// annotationSources is a list of CIDRs, in JSON, that a pod asks to send from beside its own addresses.
const annotationSources = "cni.projectcalico.org/allowedSourcePrefixes"

// maxSources is the number of prefixes that an endpoint may list. Each takes an entry of a map that all pods of the node share.
const maxSources = 16

// sources returns the prefixes of the pod's annotation; none for pods of other nodes, which enforce it themselves.
func (c Pods) sources(r *Report, p *corev1.Pod) []netip.Prefix {
	text, ok := p.Annotations[annotationSources]
	if !ok || text == "" || c.isElsewhere(p) {
		return nil
	}
	path := field.NewPath("metadata", "annotations").Key(annotationSources).String()
	var list []string
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		r.Add(Warning, path, "%q is not a list of CIDRs in JSON; ignored", clip(text))
		return nil
	}
	return r.Sources(path, list, c.SourceSpoofing)
}

// Sources reads the prefixes that an endpoint lists as further sources. Prefixes that do not count are reported
// and left out. enabled: the configuration lets pods have any.
func (r *Report) Sources(path string, texts []string, enabled bool) []netip.Prefix {
	if len(texts) == 0 {
		return nil
	}
	if !enabled {
		r.Add(Warning, path, "ignored, so packets from these addresses are dropped as spoofed: workload-source-spoofing is Disabled")
		return nil
	}
	var all distinct[netip.Prefix]
	for _, text := range texts {
		p, ok := r.source(path, text)
		if !ok {
			continue
		}
		if all.add(p); len(all.list) > maxSources {
			r.Add(Warning, path, "an endpoint may list %d prefixes; those from %q on are ignored", maxSources, text)
			return all.list[:maxSources]
		}
	}
	return all.list
}

// source reads one prefix.
func (r *Report) source(path, text string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		r.Add(Warning, path, "%q is not a CIDR; ignored", text)
		return p, false
	case p.Addr().Is4In6():
		r.Add(Warning, path, "%q is an IPv4-mapped CIDR, which no packet has; write it as IPv4; ignored", text)
		return p, false
	}
	if what := model.NeverASource(p); what != "" {
		r.Add(Warning, path, "%q has %s only, which no packet from a pod may have as its source; ignored", text, what)
		return p, false
	}
	if p != p.Masked() {
		r.Add(Warning, path, "%q has bits beyond its mask; read as %q", text, p.Masked())
	}
	return p.Masked(), true
}
