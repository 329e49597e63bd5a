package bpfmaps

// Putting new arrays into the outer maps waits for RCU: 3 ms on an idle machine, 20 ms on a busy one, for one slot as for
// several. So whoever has to wait puts in spare arrays of the same sizes for idle slots, and the next policies of that size
// need not wait.
const (
	spareSlots = 3
	// spareBytes bounds what the spare arrays of one Publish take.
	spareBytes = 1 << 20
)

// addSpares adds arrays for idle slots to what is created for a content of these sizes. They count as those of contents from
// first on. What cannot be created is left out: nothing depends on it. The slots are those that a content would get, so that
// policies of ever other sizes fill idle slots again instead of more and more of them.
func (s *Slots) addSpares(first int, sizes [parts]uint32, created *[parts][]placement) {
	var capacity [parts]uint32
	for p, n := range sizes {
		if n > 0 {
			capacity[p] = headroom(n)
		}
	}
	bytes := s.bytes(capacity)
	if bytes == 0 {
		return
	}
	most := min(uint64(spareSlots-min(spareSlots, s.fitting(idle, sizes))), spareBytes/bytes)
	for i := range int(most) {
		slot := s.anyIdle()
		if slot == 0 || !s.addSpare(first+i, slot, capacity, created) {
			return
		}
		s.places[slot].state = waiting // for as long as others are looked for
		defer func() { s.places[slot].state = idle }()
	}
}

func (s *Slots) addSpare(content int, slot uint32, capacity [parts]uint32, created *[parts][]placement) bool {
	for p, n := range capacity {
		if n <= s.places[slot].capacity[p] {
			continue
		}
		inner, err := s.newInner(part(p), n)
		if err != nil {
			return false
		}
		created[p] = append(created[p], placement{content, slot, inner})
	}
	return true
}

// lastCreated is the last content that arrays were created for, -1 if there is none.
func lastCreated(created [parts][]placement) int {
	last := -1
	for _, list := range created {
		for _, l := range list {
			last = max(last, l.content)
		}
	}
	return last
}
