package config

import (
	"math"
	"slices"
	"strings"
)

// meantBy is the setting that a name which is none may have been meant for; nil: there is none like it.
func meantBy(name string) *Setting {
	names := make([]string, 0, len(settings))
	for _, s := range settings {
		names = append(names, s.Name)
	}
	// However it is spelt elsewhere: logLevel, log_level.
	folded := strings.ReplaceAll(strings.ToLower(name), "_", "-")
	best, distance := nearest(folded, names)
	if distance > max(2, len(name)/3) {
		return nil
	}
	return find(best)
}

// nearest is the candidate that takes the fewest edits to get to, the first of several.
func nearest(name string, candidates []string) (best string, distance int) {
	distance = math.MaxInt
	for _, c := range candidates {
		if d := edits(name, c); d < distance {
			best, distance = c, d
		}
	}
	return best, distance
}

// edits is how many bytes must be inserted, left out or replaced to make a of b.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := slices.Clone(row)
		row[0] = i + 1
		for j := range len(b) {
			replaced := before[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(before[j+1]+1, row[j]+1, replaced)
		}
	}
	return row[len(b)]
}
