package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/inspect"
)

func sample() *table {
	t := &table{header: []string{"NAME", "STATE", "PACKETS"}, wide: []string{"ID"}, none: "nothing"}
	t.add("shop/web", "ok", "9", "1")
	t.add("shop/a-pod-with-a-very-long-name", "not ready: it waits for its interface", "10", "2")
	t.add("", "stale", "", "3")
	return t
}

func TestTableFitsTheTerminal(t *testing.T) {
	for _, width := range []int{30, 40, 60, 80} {
		var out bytes.Buffer
		if err := sample().write(&screen{Writer: &out, width: width, terminal: true}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("%d columns on a terminal of %d: %s", n, width, line)
			}
		}
		if cut := strings.Contains(out.String(), "…"); cut != (width < 79) {
			t.Errorf("on a terminal of %d columns something is cut: %v\n%s", width, cut, &out)
		}
	}
	want := `
NAME                              STATE                                  PACKETS  ID
shop/web                          ok                                     9        1
shop/a-pod-with-a-very-long-name  not ready: it waits for its interface  10       2
-                                 stale                                  -        3
`
	var out bytes.Buffer
	if err := sample().writeWide(&screen{Writer: &out, width: 30, terminal: true}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), out.String()); diff != "" {
		t.Errorf("wide (-want +got):\n%s", diff)
	}
}

func TestColumnsAlignWithColoursAsWithout(t *testing.T) {
	write := func(color bool) string {
		var out bytes.Buffer
		if err := sample().write(&screen{Writer: &out, width: 50, color: color}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	colored := write(true)
	for _, want := range []string{green + "ok" + plain, red + "not ready: it w", yellow + "stale" + plain, bold + "NAME" + plain} {
		if !strings.Contains(colored, want) {
			t.Errorf("no %q in %q", want, colored)
		}
	}
	for _, code := range []string{bold, red, green, yellow, plain} {
		colored = strings.ReplaceAll(colored, code, "")
	}
	if diff := cmp.Diff(write(false), colored); diff != "" {
		t.Errorf("(-without colours +with, their codes removed):\n%s", diff)
	}
}

func TestColoursAreForTerminalsThatWantThem(t *testing.T) {
	for _, c := range []struct {
		flag, noColor string
		want          bool
	}{{"always", "", true}, {"always", "1", true}, {"never", "", false}, {"auto", "", false}} {
		t.Setenv("NO_COLOR", c.noColor)
		if s := newScreen(&bytes.Buffer{}, c.flag); s.color != c.want || s.terminal {
			t.Errorf("--color %s, NO_COLOR=%q, no terminal: colours %v, want %v", c.flag, c.noColor, s.color, c.want)
		}
	}
}

func TestTableIsSortedByAnyColumn(t *testing.T) {
	for by, want := range map[string][]int{
		"name": {2, 1, 0}, "PACKETS": {2, 0, 1}, "-packets": {1, 0, 2}, "id": {0, 1, 2}, "-id": {2, 1, 0},
	} {
		got, err := sample().order(by)
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("by %s: %v, %v; want %v", by, got, err, want)
		}
	}
	if _, err := sample().order("color"); err == nil || !strings.Contains(err.Error(), "name, state, packets, id") {
		t.Errorf("by a column that is not there: %v", err)
	}
}

// The state of an endpoint is why one looks at the table: other columns give way, and where that is not enough the line is longer.
func TestTheStateOfAnEndpointIsNeverCut(t *testing.T) {
	state := "waiting for its interface; 10.65.1.3 NotRouted"
	for _, width := range []int{30, 80, 120} {
		var out bytes.Buffer
		table := endpointTable([]inspect.EndpointRow{{Namespace: "shop", Name: "a-pod-with-a-long-name-6c9f8d7b5-x2x7z", Interface: "cali551b05c3e54", Error: state}})
		if err := table.write(&screen{Writer: &out, width: width, terminal: true}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), state+"\n") {
			t.Errorf("on a terminal of %d columns\n%s", width, &out)
		}
	}
}
