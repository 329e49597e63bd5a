package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/margay-project/margay/bench/paired"
)

var sample = []Result{
	Required("P1", "shortcut <off>", "ratio", paired.Estimate{Median: 1.06, Low: 1.05, High: 1.08}, 1.075),
	Required("P1", "shortcut on", "ratio", paired.Estimate{Median: 0.95, Low: 0.94, High: 0.96}, 0.92),
	Info("P7", "empty", "ns", paired.Estimate{Median: 26.4, Low: 26, High: 27}),
	Info("P3", "not measured", "ratio", paired.Estimate{Median: math.NaN(), Low: math.NaN(), High: math.NaN()}),
	Required("P12", "lost", "flows", Exact(0), 0),
}

func TestRequiredComparesTheMedian(t *testing.T) {
	if got := Failed(sample); got != 1 {
		t.Errorf("%d missed, want 1", got)
	}
}

func TestTableNamesWhatWasMissed(t *testing.T) {
	var b bytes.Buffer
	if err := Table(&b, sample); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	if !strings.Contains(lines[2], "MISSED") || strings.Contains(lines[1], "MISSED") || !strings.Contains(lines[1], "1.060") {
		t.Errorf("table:\n%s", b.String())
	}
	if !strings.Contains(lines[5], "0 flows") || !strings.Contains(lines[5], "ok") {
		t.Errorf("table:\n%s", b.String())
	}
}

func TestJSONIsAListWithoutWhatCouldNotBeComputed(t *testing.T) {
	var b bytes.Buffer
	if err := JSON(&b, sample); err != nil {
		t.Fatal(err)
	}
	var list []map[string]any
	if err := json.Unmarshal(b.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != len(sample)-1 {
		t.Fatalf("%d results, want %d", len(list), len(sample)-1)
	}
	if list[1]["id"] != "P1" || list[1]["pass"] != false || list[1]["must"] != 0.92 || list[2]["pass"] != nil {
		t.Errorf("%v", list)
	}
}

func TestSVGIsWellFormedAndShowsEveryResult(t *testing.T) {
	var b bytes.Buffer
	if err := SVG(&b, "a & b", sample); err != nil {
		t.Fatal(err)
	}
	bars, d := 0, xml.NewDecoder(&b)
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := token.(xml.StartElement); ok && s.Name.Local == "rect" {
			bars++
		}
	}
	if bars != 4+1 {
		t.Errorf("%d rectangles, want one for each finite result and the background", bars)
	}
}

func TestLongestLeavesRoomForWhatIsComparedAndCutsTheRest(t *testing.T) {
	bar := func(v float64) Result { return Info("P4", "", "ratio", Exact(v)) }
	for _, tc := range []struct {
		name  string
		panel []Result
		want  float64
	}{
		{"all alike", []Result{bar(1), bar(2)}, 2},
		{"one much longer", []Result{bar(1), bar(1), bar(60)}, 4},
		{"one much longer than what is required", []Result{sample[0], bar(60)}, 2 * 1.08},
		{"nothing but zero", []Result{bar(0)}, 1},
	} {
		if got := longest(tc.panel); got != tc.want {
			t.Errorf("%s: %g, want %g", tc.name, got, tc.want)
		}
	}
}
