package cli

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/inspect"
)

func TestDurationsInJSONLogsAreSeconds(t *testing.T) {
	var out bytes.Buffer
	log := newLogger(&out, slog.LevelInfo)
	log.With("since", 2*time.Minute).Info("x", "took", 562567*time.Nanosecond, slog.Group("g", "for", -time.Second), "n", 7)
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	group, _ := line["g"].(map[string]any)
	if line["tookSeconds"] != 0.000563 || line["sinceSeconds"] != 120.0 || group["forSeconds"] != -1.0 || line["n"] != 7.0 {
		t.Errorf("%s", &out)
	}
	if _, ok := line["took"]; ok {
		t.Errorf("a duration without a unit: %s", &out)
	}
}

func TestDurationsInTextAreBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 999: "999ns", 562567: "563µs", 17007841: "17ms", 1234567890: "1.23s", -1234567890: "-1.23s", 90 * time.Second: "1m30s",
	} {
		if got := durationText(nil, slog.Duration("took", d)).Value.String(); got != want {
			t.Errorf("%d ns: %s, want %s", d, got, want)
		}
	}
}

// What tools print as JSON has durations as numbers of seconds in fields that say so.
func TestDurationsOfToolsAreSeconds(t *testing.T) {
	seen, found := map[reflect.Type]bool{}, 0
	var walk func(path string, r reflect.Type)
	walk = func(path string, r reflect.Type) {
		for r.Kind() == reflect.Pointer || r.Kind() == reflect.Slice || r.Kind() == reflect.Map {
			r = r.Elem()
		}
		if r == reflect.TypeFor[time.Duration]() {
			t.Errorf("%s is a time.Duration: JSON has nanoseconds without a unit", path)
		}
		if r.Kind() != reflect.Struct || seen[r] || r.PkgPath() == "time" || r.PkgPath() == "net/netip" {
			return
		}
		seen[r] = true
		for i := range r.NumField() {
			f := r.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if strings.HasSuffix(name, "Seconds") {
				found++
				if f.Type.Kind() != reflect.Float64 {
					t.Errorf("%s.%s is a %s, want float64", path, name, f.Type)
				}
			} else if name == "took" || name == "for" || name == "age" {
				t.Errorf("%s.%s: a duration without a unit", path, name)
			}
			walk(path+"."+name, f.Type)
		}
	}
	walk("answer", reflect.TypeFor[inspect.Answer]())
	if found == 0 {
		t.Error("no duration found: is the test still looking at the right types?")
	}
}
