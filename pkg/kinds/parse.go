package kinds

import "github.com/margay-project/margay/pkg/validate"

// Table is what validate.Parser reads manifests by.
func Table(pods validate.Pods) validate.Table {
	var t validate.Table
	for _, k := range All(pods) {
		for _, gv := range k.Versions {
			name := validate.KindName{APIVersion: gv.String(), Kind: k.Name}
			switch {
			case k.IsRead():
				t.Read = append(t.Read, validate.Reader{KindName: name, Ref: k.Ref, Namespaced: k.Namespaced, Read: k.Read})
			case k.Policy:
				t.Policy = append(t.Policy, name)
			}
		}
	}
	return t
}

// Parse reads every object in the text of a manifest file, as validate.Table.Parse does, of pods what the kubelet reports.
func Parse(file string, text []byte) []validate.Document {
	return Table(validate.Pods{}).Parse(file, text)
}
