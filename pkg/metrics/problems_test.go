package metrics

import (
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/margay-project/margay/pkg/validate"
)

// TestManifestsMakeNoSeries: objects of any number of invented kinds are one series.
func TestManifestsMakeNoSeries(t *testing.T) {
	list := []validate.Problem{
		{Ref: validate.Ref{File: "broken.yaml"}, Severity: validate.Rejected},
		{Ref: validate.Ref{Kind: "NetworkPolicy.projectcalico.org", Name: "a"}, Severity: validate.Rejected},
	}
	for i := range 300 {
		list = append(list, validate.Problem{Ref: validate.Ref{Kind: fmt.Sprintf("Kind%d", i), Name: "a"}, Severity: validate.Rejected})
	}
	series := make(chan prometheus.Metric, len(list))
	sink(series).problems(slices.Values(list))
	if len(series) != 2 {
		t.Errorf("%d series, want one of Calico's policies and one of all that is not known", len(series))
	}
}
