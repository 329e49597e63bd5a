// Package suggest finds the name that a misspelt one was meant for. It is pure.
package suggest

// Nearest returns the candidate that takes the fewest edits to get to from name, the first of several. Not ok if even
// that one takes more than one edit in four bytes of the name (one for the shortest): then it is most likely another name.
// Letters count alike in both cases, but a candidate in the right case is nearer.
func Nearest(name string, candidates []string) (best string, ok bool) {
	limit := max(1, len(name)/4)
	nearest := 2*limit + 2
	for _, c := range candidates {
		if len(c) > len(name)+limit || len(name) > len(c)+limit {
			continue // it takes more edits
		}
		if d := 2 * Edits(fold(name), fold(c)); d <= 2*limit {
			if name != c && d == 0 {
				d = 1
			}
			if d < nearest {
				best, nearest = c, d
			}
		}
	}
	return best, best != ""
}

// Question is " (did you mean ingress?)", or empty if no candidate is near.
func Question(name string, candidates []string) string {
	if best, ok := Nearest(name, candidates); ok {
		return " (did you mean " + best + "?)"
	}
	return ""
}

// Edits is how many bytes must be inserted, left out, replaced or swapped with the next to make a of b.
func Edits(a, b string) int {
	row, before, older := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		row, before, older = older, row, before
		row[0] = i + 1
		for j := range len(b) {
			replaced := before[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(before[j+1]+1, row[j]+1, replaced)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], older[j-1]+1)
			}
		}
	}
	return row[len(b)]
}

// fold makes ASCII letters lower case, so that lengths stay as they are.
func fold(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
