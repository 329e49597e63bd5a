package classes_test

import (
	"testing"

	"github.com/margay-project/margay/pkg/compile/classes"
)

// A tenant has as many classes as marks have room for, each of them in 512 sets.
func BenchmarkShares(b *testing.B) {
	var all []classes.Class
	for i := range 8190 {
		sets := make([]uint32, 512)
		for k := range sets {
			sets[k] = uint32(1 + 2*k + i>>(k%13)&1)
		}
		all = append(all, classes.Class{Family: 4, Sets: sets})
	}
	for b.Loop() {
		classes.Shares(all, func(set uint32) int { return int(set % 3) }, 3)
	}
}
