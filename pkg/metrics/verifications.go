package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// verifications are the metrics of comparing all of the kernel with the objects.
type verifications struct {
	results                                               *prometheus.CounterVec
	differences, notProven, duration, succeeded, interval prometheus.Gauge
	cpu                                                   prometheus.Counter
}

func newVerifications() verifications {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + name, Help: help})
	}
	v := verifications{
		results: prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "verifications_total",
			Help: "Verifications of all endpoints, by result."}, []string{"result"}),
		differences: gauge("verify_differences", "Differences between the kernel and the objects that the last verification found."),
		notProven:   gauge("verify_not_proven", "Endpoints that the last verification could not verify."),
		duration:    gauge("verify_duration_seconds", "How long the last verification took."),
		succeeded:   gauge("verify_last_success_timestamp_seconds", "When the last verification that proved everything ended, in seconds since 1970."),
		interval:    gauge("verify_interval_seconds", "How often the agent is configured to verify all endpoints; 0: never."),
		cpu:         counter("verify_cpu_seconds_total", "CPU that verifications have used."),
	}
	for _, result := range []string{"proven", "differs", "not_proven"} {
		v.results.WithLabelValues(result)
	}
	return v
}

func (v *verifications) all() []prometheus.Collector {
	return []prometheus.Collector{v.results, v.differences, v.notProven, v.duration, v.succeeded, v.interval, v.cpu}
}

// Verification is what one verification of all endpoints has found.
type Verification struct {
	Differences, NotProven int
	Took, CPU              time.Duration
	Ended                  time.Time
}

// VerifyEvery notes how often the agent is configured to verify all endpoints; 0 means never.
func (v *verifications) VerifyEvery(every time.Duration) { v.interval.Set(every.Seconds()) }

// Verified notes a verification.
func (v *verifications) Verified(r Verification) {
	v.differences.Set(float64(r.Differences))
	v.notProven.Set(float64(r.NotProven))
	v.duration.Set(r.Took.Seconds())
	v.cpu.Add(r.CPU.Seconds())
	switch {
	case r.Differences > 0:
		v.results.WithLabelValues("differs").Inc()
	case r.NotProven > 0:
		v.results.WithLabelValues("not_proven").Inc()
	default:
		v.results.WithLabelValues("proven").Inc()
		v.succeeded.Set(float64(r.Ended.Unix()))
	}
}
