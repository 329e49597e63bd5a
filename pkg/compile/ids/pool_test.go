package ids

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// However numbers are claimed, released, held and reused: the lowest free one is acquired.
func TestTheLowestFreeNumberIsAcquired(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 40
		pool, taken, freed := NewPool(1, limit), map[uint32]bool{}, map[uint32]bool{}
		claimed := rapid.SliceOfNDistinct(rapid.Uint32Range(1, limit-1), 0, 10, rapid.ID).Draw(t, "claimed")
		pool.Claim(slices.Clone(claimed))
		for _, n := range claimed {
			taken[n] = true
		}
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			n := rapid.Uint32Range(1, limit-1).Draw(t, "number")
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0, 1:
				want := uint32(0)
				for n := uint32(limit - 1); n > 0; n-- {
					if !taken[n] && !freed[n] {
						want = n
					}
				}
				if got := pool.Acquire(); got != want {
					t.Fatalf("number %d was acquired, want %d", got, want)
				}
				taken[want] = true
			case 2, 3:
				if taken[n] {
					pool.Release(n)
					freed[n] = true
					delete(taken, n)
				}
			default:
				held := map[uint32]bool{n: true, n + 1: true}
				pool.ReuseBut(held)
				for n := range freed {
					if !held[n] {
						delete(freed, n)
					}
				}
			}
		}
	})
}

// BenchmarkReuse gives 128 numbers back and acquires them again, as a part of a large policy does, while 24,000 others are free.
func BenchmarkReuse(b *testing.B) {
	const many, some = 24_000, 128
	pool := NewPool(1, 1<<20)
	for range many + some {
		pool.Acquire()
	}
	for n := range uint32(many) {
		pool.Release(n + 1 + some)
	}
	pool.Reuse()
	for b.Loop() {
		for n := range uint32(some) {
			pool.Release(n + 1)
		}
		pool.Reuse()
		for range some {
			pool.Acquire()
		}
	}
}
