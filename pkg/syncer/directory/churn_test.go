package directory

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// networks are the lines of so many networks of a set.
func networks(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "  - 100.%d.%d.%d\n", 64+i>>16, i>>8&255, i&255)
	}
	return b.Bytes()
}

// setText is the manifest of a network set, which has a network that says the version before all others.
func setText(networks []byte, version byte) []byte {
	head := fmt.Sprintf("apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata: {name: large}\nspec:\n  nets:\n  - 172.16.0.%d\n", version)
	return append([]byte(head), networks...)
}

// churned is what a consumer sees of a set that changes 100 times a second, and of a small file beside it.
type churned struct {
	slowestSmall time.Duration // from the write of the small file to its delivery
	last         time.Duration // from the last write of the set to its delivery
	versions     int           // of the set that were delivered
	changes      int           // that were written
	cpu          time.Duration // of the process, the writer included
}

// churn changes a set of so many networks 100 times a second for a while, each time by another file in its place.
func churn(tb testing.TB, nets int, lasting time.Duration) churned {
	tb.Helper()
	dir := tb.TempDir()
	write := func(name string, text []byte) {
		aside := filepath.Join(dir, "."+name)
		if err := os.WriteFile(aside, text, 0o600); err != nil {
			tb.Fatal(err)
		}
		if err := os.Rename(aside, filepath.Join(dir, name)); err != nil {
			tb.Fatal(err)
		}
	}
	others := networks(nets - 1)
	write("set.yaml", setText(others, 0))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	small, set := make(chan string, 1000), make(chan byte, 10_000)
	running.Go(func() {
		err := New(dir, validate.Pods{}, slog.New(slog.DiscardHandler)).Run(ctx, func(b syncer.Batch) {
			for _, u := range b.Updates {
				switch u := u.(type) {
				case model.NetworkSetUpdate:
					for _, n := range u.Set.Nets {
						if a := n.Addr().As4(); a[0] == 172 {
							set <- a[3]
						}
					}
				case model.ProfileUpdate:
					small <- u.Profile.Labels["pcns.v"]
				}
			}
		})
		if err != nil {
			tb.Error(err)
		}
	})
	<-set
	before := testutil.CPUTime(tb)
	var result churned
	stalls := testutil.WatchStalls(tb)
	started, written := time.Now(), time.Time{}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var waiting sync.WaitGroup
	for time.Since(started) < lasting {
		result.changes++
		write("set.yaml", setText(others, byte(result.changes%200)))
		if result.changes%25 == 0 {
			waiting.Wait()
			version, at := fmt.Sprint("v", result.changes), time.Now()
			write("small.yaml", []byte(namespace("small", version)))
			waiting.Go(func() {
				for got := range small {
					if got == version {
						result.slowestSmall = max(result.slowestSmall, stalls.Since(at))
						return
					}
				}
			})
		}
		<-tick.C
	}
	waiting.Wait()
	write("set.yaml", setText(others, 255))
	for written = time.Now(); ; {
		result.versions++
		select {
		case version := <-set:
			if version != 255 {
				continue
			}
			result.last, result.cpu = stalls.Since(written), testutil.CPUTime(tb)-before
			return result
		case <-time.After(time.Minute):
			tb.Fatal("the last version of the set is not delivered")
		}
	}
}

// TestASetThatChangesAllTheTimeHoldsUpNoOther: what is between two readings of a file is skipped, and its last version counts.
func TestASetThatChangesAllTheTimeHoldsUpNoOther(t *testing.T) {
	got := churn(t, 8000, 2*time.Second)
	t.Logf("%+v", got)
	if got.slowestSmall > time.Second || got.last > 3*time.Second || got.versions >= got.changes || got.versions < 2 {
		t.Errorf("%+v", got)
	}
}

// BenchmarkASetThatChangesAllTheTime has 100,000 networks in one manifest, which changes 100 times a second, as far as it can be
// written so often.
func BenchmarkASetThatChangesAllTheTime(b *testing.B) {
	var got churned
	for b.Loop() {
		got = churn(b, 100_000, 5*time.Second)
	}
	b.ReportMetric(got.slowestSmall.Seconds()*1000, "small-ms")
	b.ReportMetric(got.last.Seconds()*1000, "last-ms")
	b.ReportMetric(float64(got.versions), "delivered")
	b.ReportMetric(float64(got.changes), "changes")
	b.ReportMetric(got.cpu.Seconds(), "cpu-s")
}
