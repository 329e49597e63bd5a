package cli

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
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

// A text without room goes on in the next line of its column. Names are not broken: 52 columns are the least that this table needs.
func TestTableFitsTheTerminal(t *testing.T) {
	for _, width := range []int{30, 40, 52, 60, 80} {
		var out bytes.Buffer
		if err := sample().write(&screen{Writer: &out, width: width, terminal: true}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > max(width, 52) {
				t.Errorf("%d columns on a terminal of %d: %s", n, width, line)
			}
		}
		for _, row := range sample().rows {
			for _, word := range strings.Fields(strings.Join(row[:3], " ")) {
				if !strings.Contains(out.String(), word) {
					t.Errorf("on a terminal of %d columns there is no %q:\n%s", width, word, &out)
				}
			}
		}
		if lines := strings.Count(out.String(), "\n"); lines > 4 != (width < 79) {
			t.Errorf("on a terminal of %d columns there are %d lines:\n%s", width, lines, &out)
		}
	}
	narrow := `
NAME                              STATE       PACKETS
shop/web                          ok          9
shop/a-pod-with-a-very-long-name  not ready:  10
                                  it waits
                                  for its
                                  interface
-                                 stale       -
`
	var lines bytes.Buffer
	if err := sample().write(&screen{Writer: &lines, width: 53, terminal: true}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimPrefix(narrow, "\n"), lines.String()); diff != "" {
		t.Errorf("on a terminal of 53 columns (-want +got):\n%s", diff)
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
		if err := sample().write(&screen{Writer: &out, width: 62, color: color}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	colored := write(true)
	for _, want := range []string{green + "ok" + plain, red + "not ready: it waits" + plain, red + "for its interface" + plain, yellow + "stale" + plain, bold + "NAME" + plain} {
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

// No name and no address is cut or broken, however long it is and however narrow the terminal.
func TestLongNamesStayWhole(t *testing.T) {
	name := strings.Repeat("a-long-name.", 21) + "x" // 253 characters
	address := netip.MustParseAddr("2001:db8:1111:2222:3333:4444:5555:6666")
	var list []inspect.EndpointRow
	for i := range 100 {
		list = append(list, inspect.EndpointRow{Namespace: strings.Repeat("n", 63), Name: fmt.Sprint(name[:252], i%10), Interface: "cali551b05c3e54", Ifindex: 7,
			Addrs: []netip.Addr{netip.MustParseAddr("10.65.1.3"), address}, Error: "its policy is refused: " + name})
	}
	status := &inspect.StatusReport{InSync: true, NotReady: []string{"policy: " + strings.Repeat("a reason that is long, ", 20) + name}}
	for _, width := range []int{0, 20, 80, 200, 1000} {
		for what, write := range map[string]func(io.Writer) error{
			"endpoints": endpointTable(list).write,
			"status":    func(w io.Writer) error { return writeStatus(w, status) },
			"problems":  problemTable([]inspect.ProblemRow{{Severity: "rejected", Object: "NetworkPolicy " + name, Field: "spec", Reason: address.String() + " " + name}}).write,
			"flows":     flowTable([]flowRow{{Protocol: "tcp", Opener: "[" + address.String() + "]:80", OpenerName: name, Responder: "10.0.0.1:80"}}).write,
		} {
			var out bytes.Buffer
			if err := write(&screen{Writer: &out, width: width, terminal: width > 0}); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), name[:252]) || what != "status" && !strings.Contains(out.String(), address.String()) || strings.Contains(out.String(), "…") {
				t.Errorf("%s on a terminal of %d columns\n%s", what, width, out.String()[:min(out.Len(), 4000)])
			}
			if lines := strings.Count(out.String(), "\n"); width == 0 && what == "endpoints" && lines != 101 {
				t.Errorf("without a terminal 100 endpoints have %d lines", lines)
			}
		}
	}
}
