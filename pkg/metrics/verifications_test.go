package metrics

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestVerificationsAreCountedByResult(t *testing.T) {
	m := newFull(t)
	ended := time.Unix(2000, 0)
	m.VerifyEvery(time.Hour)
	m.Verified(Verification{Took: 3 * time.Second, CPU: time.Second, Ended: ended})
	m.Verified(Verification{Differences: 2, NotProven: 1, Took: time.Second, CPU: time.Second, Ended: ended.Add(time.Hour)})
	m.Verified(Verification{NotProven: 1, Took: time.Second, CPU: time.Second, Ended: ended.Add(time.Hour)})
	got := slices.DeleteFunc(scraped(t, m), func(line string) bool { return !strings.HasPrefix(line, "margay_verif") })
	want := []string{
		`margay_verifications_total{result="differs"} 1`, `margay_verifications_total{result="not_proven"} 1`,
		`margay_verifications_total{result="proven"} 1`, "margay_verify_cpu_seconds_total 3", "margay_verify_differences 0",
		"margay_verify_duration_seconds 1", "margay_verify_interval_seconds 3600", "margay_verify_last_success_timestamp_seconds 2000", "margay_verify_not_proven 1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
