package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// table writes columns under a header. An empty table writes none instead, which names the missing objects.
type table struct {
	header []string
	wide   []string // further columns, which only -o wide shows; rows have their cells last
	rows   [][]string
	none   string
	whole  string // the header of a column whose texts stay in one line, though a line may be longer than the terminal is wide for it; empty: none
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// write writes the table without the wide columns. On a terminal a text that has no room goes on in the next line of its column. Nothing is
// cut, and no word is broken: names and addresses stay whole, though a line may be longer than the terminal is wide for them.
func (t *table) write(w io.Writer) error {
	s := screenOf(w)
	return t.print(s, t.header, s.width)
}

// writeWide writes all columns, each row in one line.
func (t *table) writeWide(w io.Writer) error {
	return t.print(screenOf(w), slices.Concat(t.header, t.wide), 0)
}

const gap = 2 // between columns

func (t *table) print(s *screen, header []string, width int) error {
	if len(t.rows) == 0 {
		_, err := fmt.Fprintln(s, t.none)
		return err
	}
	widths := t.widths(header, utf8.RuneCountInString)
	if width > 0 {
		least := t.widths(header, longestWord)
		if whole := slices.Index(header, t.whole); whole >= 0 {
			least[whole] = widths[whole]
		}
		shrink(widths, least, width)
	}
	var b strings.Builder
	for n, cells := range append([][]string{header}, t.rows...) {
		writeRow(&b, s, header, cells, widths, n == 0)
	}
	_, err := io.WriteString(s, b.String())
	return err
}

// writeRow writes one row, in as many lines as its cells need.
func writeRow(b *strings.Builder, s *screen, header, cells []string, widths []int, first bool) {
	lines, codes := make([][]string, len(header)), make([]string, len(header))
	height := 1
	for i := range header {
		text := cell(cells, i)
		lines[i], codes[i] = wrap(text, widths[i]), s.code(text)
		if first && codes[i] == "" {
			codes[i] = s.heading()
		}
		height = max(height, len(lines[i]))
	}
	for k := range height {
		pad := 0
		for i := range header {
			if k >= len(lines[i]) {
				pad += widths[i] + gap
				continue
			}
			text := lines[i][k]
			b.WriteString(strings.Repeat(" ", pad))
			b.WriteString(colored(codes[i], text))
			pad = widths[i] + gap - utf8.RuneCountInString(text)
		}
		b.WriteByte('\n')
	}
}

// cell is one cell of a row; one with nothing in it has a dash.
func cell(cells []string, i int) string {
	if i >= len(cells) || cells[i] == "" {
		return "-"
	}
	return cells[i]
}

// widths are those of the columns, of cells that are as long as length says.
func (t *table) widths(header []string, length func(string) int) []int {
	widths := make([]int, len(header))
	for i, h := range header {
		widths[i] = length(h)
		for _, cells := range t.rows {
			widths[i] = max(widths[i], length(cell(cells, i)))
		}
	}
	return widths
}

// narrowest is the least width of a column, however little room there is.
const narrowest = 8

// shrink takes room from the widest columns until all of them fit, and leaves each at least as much as it needs.
func shrink(widths, least []int, room int) {
	over := gap*(len(widths)-1) - room
	for _, w := range widths {
		over += w
	}
	for ; over > 0; over-- {
		widest := -1
		for i, w := range widths {
			if w > max(narrowest, least[i]) && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

// words cuts a text after its spaces and commas.
func words(text string) (list []string) {
	for {
		i := strings.IndexAny(text, " ,")
		if i < 0 || i == len(text)-1 {
			return append(list, text)
		}
		list, text = append(list, text[:i+1]), text[i+1:]
	}
}

// longestWord is how wide the longest word of a text is.
func longestWord(text string) int {
	longest := 0
	for _, w := range words(text) {
		longest = max(longest, utf8.RuneCountInString(strings.TrimRight(w, " ")))
	}
	return longest
}

// wrap cuts a text into lines. A word that has no room is a line.
func wrap(text string, room int) (lines []string) {
	if utf8.RuneCountInString(text) <= room {
		return []string{text}
	}
	line := ""
	for _, w := range words(text) {
		if line != "" && utf8.RuneCountInString(line)+utf8.RuneCountInString(strings.TrimRight(w, " ")) > room {
			lines, line = append(lines, strings.TrimRight(line, " ")), ""
		}
		line += w
	}
	return append(lines, line)
}

// order returns the rows' indexes sorted by a column, named as in the header or with a hyphen before it for the other way
// round. Numbers are sorted as such.
func (t *table) order(by string) ([]int, error) {
	name, down := strings.CutPrefix(by, "-")
	header := slices.Concat(t.header, t.wide)
	column := slices.IndexFunc(header, func(h string) bool { return strings.EqualFold(columnName(h), columnName(name)) })
	if column < 0 {
		return nil, fmt.Errorf("--sort-by %q: want one of %s", by, strings.Join(columnNames(header), ", "))
	}
	order := make([]int, len(t.rows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		c := compareCells(cell(t.rows[a], column), cell(t.rows[b], column))
		if down {
			return -c
		}
		return c
	})
	return order, nil
}

// columnName is a header as one types it.
func columnName(header string) string { return strings.ReplaceAll(strings.ToLower(header), " ", "-") }

func columnNames(header []string) []string {
	var names []string
	for _, h := range header {
		names = append(names, columnName(h))
	}
	return names
}

// compareCells compares numbers, also with a unit behind them, as numbers; unknown values come first.
func compareCells(a, b string) int {
	x, xErr := strconv.ParseFloat(strings.TrimSuffix(a, "s"), 64)
	y, yErr := strconv.ParseFloat(strings.TrimSuffix(b, "s"), 64)
	switch {
	case xErr == nil && yErr == nil:
		return cmp.Compare(x, y)
	case (a == "-") != (b == "-"):
		if a == "-" {
			return -1
		}
		return 1
	}
	return cmp.Compare(a, b)
}
