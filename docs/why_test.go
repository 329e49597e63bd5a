package docs

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestWhatIsSaidToBeMeasuredWas: each number in the table of docs/why.md is the median of one row of
// bench/results/latest.txt, rounded to the digits that the table gives. README.md has the first two.
func TestWhatIsSaidToBeMeasuredWas(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "bench/results/latest.txt"))
	if err != nil {
		t.Fatal(err)
	}
	claim := regexp.MustCompile("(?m)^\\| [^|]+ \\| ([0-9.]+)(?: ns| ms)? \\| `([^`]+)` \\|$")
	median := regexp.MustCompile(`\S {2,}([0-9.]+)(?: ns| ms)? `)
	claims := claim.FindAllStringSubmatch(documents(t)["docs/why.md"], -1)
	for _, c := range claims {
		var rows []string
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, c[2]) {
				rows = append(rows, line[strings.Index(line, c[2]):])
			}
		}
		if len(rows) != 1 {
			t.Errorf("%d rows of latest.txt have %q, want 1", len(rows), c[2])
			continue
		}
		m := median.FindStringSubmatch(rows[0])
		if m == nil {
			t.Errorf("no median in %q", rows[0])
			continue
		}
		said, _ := strconv.ParseFloat(c[1], 64)
		measured, err := strconv.ParseFloat(m[1], 64)
		_, digits, _ := strings.Cut(c[1], ".")
		unit := math.Pow10(-len(digits))
		if err != nil || math.Abs(said-measured) > unit/2+1e-9 { // a half may be rounded up or down
			t.Errorf("docs/why.md says %s of %q, measured were %s", c[1], c[2], m[1])
		}
	}
	if len(claims) < 10 {
		t.Fatalf("%d claims in docs/why.md, want at least 10", len(claims))
	}
	if text := claims[0][1] + " and " + claims[1][1] + " ns beyond an empty program"; !strings.Contains(documents(t)["README.md"], text) {
		t.Errorf("README.md does not say %q", text)
	}
}
