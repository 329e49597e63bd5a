package compile

import "github.com/margay-project/margay/bpf"

// pages lays the columns out as two levels of pages: first levels for destination ports, then, if source ports matter,
// for those, then the second level, in which equal pages are one.
func (b *builder) pages() {
	levels := [][]span{}
	levels = append(levels, b.columns.spans[:]...)
	if len(b.sports.list) > 1 {
		levels = append(levels, b.sports.spans[:]...)
	}
	b.t.L4 = make([]bpf.L4Page, len(levels))
	seen := map[bpf.L4Page]uint16{}
	for first, spans := range levels {
		for high := range 256 {
			var page bpf.L4Page
			spans = fillPage(&page, spans, high<<8)
			n, ok := seen[page]
			if !ok {
				n = uint16(len(b.t.L4))
				seen[page] = n
				b.t.L4 = append(b.t.L4, page)
			}
			b.t.L4[first].Col[high] = n
		}
	}
}

// fillPage writes the columns of the 256 keys from base on. spans begins with the one that holds base, and so does the
// result for the page after.
func fillPage(page *bpf.L4Page, spans []span, base int) []span {
	for low := range page.Col {
		for len(spans) > 1 && int(spans[1].lo) <= base+low {
			spans = spans[1:]
		}
		page.Col[low] = uint16(spans[0].col)
	}
	return spans
}
