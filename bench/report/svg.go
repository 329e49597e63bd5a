package report

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"

	"github.com/margay-project/margay/bench/paired"
)

// Sizes of the plot, in pixels.
const (
	labelWidth = 420
	plotWidth  = 420
	valueWidth = 250
	barHeight  = 16
	rowHeight  = 22
	titleSpace = 34
)

// SVG plots the results: a panel for each id, a bar for each result with its interval, and a red line where it must
// end. Panels have scales of their own; ratios are drawn from 0.
func SVG(w io.Writer, title string, results []Result) error {
	var b strings.Builder
	y := 56.0
	for _, panel := range panels(results) {
		y = drawPanel(&b, y, panel)
	}
	width := labelWidth + plotWidth + valueWidth
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%.0f" font-family="sans-serif" font-size="12">
<rect width="100%%" height="100%%" fill="white"/>
<text x="16" y="30" font-size="18">%s</text>
%s</svg>
`, width, y+16, html.EscapeString(title), b.String())
	return err
}

// panels groups results by id and unit, in their order.
func panels(results []Result) [][]Result {
	var list [][]Result
	at := map[string]int{}
	for _, r := range results {
		if math.IsNaN(r.Median) || math.IsInf(r.Median, 0) {
			continue
		}
		key := r.ID + "/" + r.Unit
		i, ok := at[key]
		if !ok {
			i = len(list)
			at[key] = i
			list = append(list, nil)
		}
		list[i] = append(list[i], r)
	}
	return list
}

// drawPanel returns where the next panel begins.
func drawPanel(b *strings.Builder, y float64, panel []Result) float64 {
	scale := plotWidth / (longest(panel) * 1.05)
	fmt.Fprintf(b, `<text x="16" y="%.0f" font-weight="bold">%s (%s)</text>`+"\n", y+14, html.EscapeString(panel[0].ID), panel[0].Unit)
	y += titleSpace - 10
	for _, r := range panel {
		drawBar(b, y, scale, r)
		y += rowHeight
	}
	return y + 12
}

// longest is what the panel's scale must have room for: twice what the results that something is required of reach, or
// four times the median where there is no such result, if others are longer.
func longest(panel []Result) float64 {
	all, required := 0.0, 0.0
	var medians []float64
	for _, r := range panel {
		reach := max(r.High, r.Median, r.Must)
		all = max(all, reach)
		medians = append(medians, r.Median)
		if r.Pass != nil {
			required = max(required, reach)
		}
	}
	limit := 2 * required
	if required == 0 {
		limit = 4 * paired.Median(medians)
	}
	if limit > 0 {
		all = min(all, limit)
	}
	if all <= 0 {
		return 1
	}
	return all
}

func drawBar(b *strings.Builder, y, scale float64, r Result) {
	colour := "#9aa5b1"
	if r.Pass != nil {
		colour = "#4c9f70"
		if !*r.Pass {
			colour = "#d98c3f"
		}
	}
	middle := y + barHeight/2
	at := func(v float64) float64 { return labelWidth + min(max(0, v)*scale, plotWidth) }
	fmt.Fprintf(b, `<text x="%d" y="%.0f" text-anchor="end">%s</text>`+"\n", labelWidth-8, middle+4, html.EscapeString(r.Config))
	fmt.Fprintf(b, `<rect x="%d" y="%.0f" width="%.1f" height="%d" fill="%s"/>`+"\n", labelWidth, y, at(r.Median)-labelWidth, barHeight, colour)
	fmt.Fprintf(b, `<path d="M%.1f %.0fH%.1fM%.1f %.0fv8M%.1f %.0fv8" stroke="black" fill="none"/>`+"\n",
		at(r.Low), middle, at(r.High), at(r.Low), middle-4, at(r.High), middle-4)
	text := Number(r.Median, r.Unit)
	if r.Median*scale > plotWidth {
		text = "→ " + text
	}
	if r.Pass != nil {
		fmt.Fprintf(b, `<path d="M%.1f %.0fv%d" stroke="#c0392b" stroke-width="2"/>`+"\n", at(r.Must), y-2, barHeight+4)
		text += " (must ≤ " + Number(r.Must, r.Unit) + ")"
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%.0f">%s</text>`+"\n", max(at(r.High), at(r.Must))+8, middle+4, html.EscapeString(text))
}
