package validate

import (
	"fmt"
	"strings"
)

// Bomb is a document in which a few anchors repeat each other to great size.
func Bomb(levels, width int) string {
	var b strings.Builder
	b.WriteString("a0: &a0 x\n")
	for i := 1; i <= levels; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), width), ","))
	}
	return b.String()
}

// MergeBomb merges a map with many keys many times.
func MergeBomb(keys, times int) string {
	var b strings.Builder
	b.WriteString("m: &m {")
	for i := range keys {
		fmt.Fprintf(&b, "k%d: 1, ", i)
	}
	b.WriteString("}\nn: {<<: [")
	b.WriteString(strings.Repeat("*m, ", times))
	b.WriteString("]}\n")
	return b.String()
}

// ScalarBomb repeats a long text.
func ScalarBomb() string {
	return "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a,", 100000) + "]"
}
