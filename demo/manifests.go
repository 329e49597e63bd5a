// Package demo holds the manifests that `margay demo` enforces.
package demo

import _ "embed"

// Shop is the policy of the demonstration.
//
//go:embed shop.yaml
var Shop []byte
