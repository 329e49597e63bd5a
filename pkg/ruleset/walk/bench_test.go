package walk_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/ruleset"
	"github.com/margay-project/margay/pkg/ruleset/walk"
)

// many is a table of 10,000 chains with four rules each; FORWARD goes through a tree of them by the mark.
func many(b *testing.B) *ruleset.Saved {
	b.Helper()
	var text strings.Builder
	text.WriteString("*mangle\n:FORWARD ACCEPT [0:0]\n")
	for i := range 10_000 {
		fmt.Fprintf(&text, ":mgyA-i%d - [0:0]\n", i)
	}
	text.WriteString("-A FORWARD -j mgyA-i0\n")
	for i := range 10_000 {
		for branch := 1; branch <= 3; branch++ {
			next := min(10*i+branch, 9999)
			if next == i {
				continue
			}
			fmt.Fprintf(&text, "-A mgyA-i%d -p tcp -m mark --mark %#x/0x3 -g mgyA-i%d\n", i, branch, next)
		}
		fmt.Fprintf(&text, "-A mgyA-i%d -j DROP\n", i)
	}
	text.WriteString("COMMIT\n")
	saved, err := ruleset.Parse(text.String())
	if err != nil {
		b.Fatal(err)
	}
	return &saved[0]
}

func BenchmarkNewTable(b *testing.B) {
	saved := many(b)
	b.ReportAllocs()
	for b.Loop() {
		walk.NewTable(saved)
	}
}

func BenchmarkWalk(b *testing.B) {
	stages := []walk.Stage{{Table: walk.NewTable(many(b)), Chain: "FORWARD"}}
	p := packet()
	p.Mark = 1
	b.ReportAllocs()
	for b.Loop() {
		if _, err := walk.Walk(stages, p, nil); err != nil {
			b.Fatal(err)
		}
	}
}
