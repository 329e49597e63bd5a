package chains

// A row becomes the plain one if it has more classes than the present plain row by these margins. They avoid changes: new addresses
// are mostly in no set of the policy, and a change of the plain row writes the slot again.
const (
	plainMargin   = 8  // when the slot is made
	rechoseMargin = 64 // later, and twice as many
)

// mostFrequent returns the row that is to be the plain one of a new slot, given the number of classes of each row, and the row of
// addresses in no set.
func mostFrequent(count map[uint16]int, none uint16) uint16 {
	plain, most := none, count[none]+plainMargin
	for _, row := range sortedKeys(count) {
		if count[row] > most {
			plain, most = row, count[row]
		}
	}
	return plain
}

// overtakes reports whether a row with so many classes is to be the plain one instead of that with the number plain.
func overtakes(classes, plain int) bool { return classes > 2*plain+rechoseMargin }

// classSet is a set of numbers of classes.
type classSet struct {
	words []uint64
	count int
}

func (c *classSet) set(number uint16, in bool) {
	word, bit := int(number/64), uint64(1)<<(number%64)
	for in && word >= len(c.words) {
		c.words = append(c.words, 0)
	}
	switch {
	case word >= len(c.words) || c.words[word]&bit != 0 == in:
	case in:
		c.words[word] |= bit
		c.count++
	default:
		c.words[word] &^= bit
		c.count--
	}
}

// all yields the numbers, ascending.
func (c *classSet) all(yield func(uint16) bool) {
	for word, bits := range c.words {
		for bit := range 64 {
			if bits>>bit&1 != 0 && !yield(uint16(word*64+bit)) {
				return
			}
		}
	}
}
