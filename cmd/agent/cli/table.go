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
	whole  string // the header of a column that is never cut, though a line may be longer than the terminal is wide for it; empty: none
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// write writes the table without the wide columns. On a terminal no line is longer than it is wide.
func (t *table) write(w io.Writer) error {
	s := screenOf(w)
	return t.print(s, t.header, s.width)
}

// writeWide writes all columns, whatever their width.
func (t *table) writeWide(w io.Writer) error {
	return t.print(screenOf(w), slices.Concat(t.header, t.wide), 0)
}

const gap = 2 // between columns

func (t *table) print(s *screen, header []string, width int) error {
	if len(t.rows) == 0 {
		_, err := fmt.Fprintln(s, t.none)
		return err
	}
	widths := t.widths(header)
	if width > 0 {
		shrink(widths, width, slices.Index(header, t.whole))
	}
	var b strings.Builder
	for n, cells := range append([][]string{header}, t.rows...) {
		for i := range header {
			text := shorten(cell(cells, i), widths[i])
			pad := widths[i] + gap - utf8.RuneCountInString(text)
			plain := text
			if text = s.paint(plain); n == 0 && text == plain {
				text = s.strong(plain)
			}
			b.WriteString(text)
			if i < len(header)-1 {
				b.WriteString(strings.Repeat(" ", pad))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(s, b.String())
	return err
}

// cell is one cell of a row; one with nothing in it has a dash.
func cell(cells []string, i int) string {
	if i >= len(cells) || cells[i] == "" {
		return "-"
	}
	return cells[i]
}

func (t *table) widths(header []string) []int {
	widths := make([]int, len(header))
	for i, h := range header {
		widths[i] = utf8.RuneCountInString(h)
		for _, cells := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell(cells, i)))
		}
	}
	return widths
}

// narrowest is the least width of a column, however little room there is.
const narrowest = 8

// shrink takes room from the widest columns until all of them fit, and none from the one that stays whole; -1: there is none.
func shrink(widths []int, room, whole int) {
	over := gap*(len(widths)-1) - room
	for _, w := range widths {
		over += w
	}
	for ; over > 0; over-- {
		widest := -1
		for i, w := range widths {
			if w > narrowest && i != whole && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

// shorten cuts a text that has no room, and shows it.
func shorten(text string, room int) string {
	if utf8.RuneCountInString(text) <= room {
		return text
	}
	runes := []rune(text)
	return string(runes[:max(0, room-1)]) + "…"
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
