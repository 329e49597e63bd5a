package validate

import (
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// In a directory an object may say any time, and what says a later one must not come first.
func TestTimesOfCreationStayInTheirRange(t *testing.T) {
	for text, want := range map[string]uint32{
		"2026-01-02T03:04:05Z": 1767323045,
		"1969-12-31T23:59:59Z": 0,
		"0001-01-01T00:00:00Z": 0,
		"9999-12-31T23:59:59Z": math.MaxUint32,
	} {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		if got := Created(metav1.NewTime(at)); got != want {
			t.Errorf("%s is %d, want %d", text, got, want)
		}
	}
}
