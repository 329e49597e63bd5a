package bpfmaps

import "github.com/margay-project/margay/pkg/delta"

// check compares a map with what the table believes to be there, part by part. The table may be written in between: what is written meanwhile is
// left out, since a part may have been read before or after.
type check[K comparable, V comparable] struct {
	reading Reading[K, V]
	seen    map[K]struct{} // read so far
	written map[K]struct{} // meanwhile
}

func (c *check[K, V]) note(keys []K) {
	for _, key := range keys {
		c.written[key] = struct{}{}
	}
}

// part compares parts until at least most entries were read. same: no difference was found. last: the map has been read.
func (c *check[K, V]) part(most int, believed func(K) (V, bool)) (same, last bool, err error) {
	same = true
	for n := 0; n < most && same && !last && err == nil; {
		last, err = c.reading.Next(func(key K, value V) {
			n++
			c.seen[key] = struct{}{}
			have, ok := believed(key)
			if _, meanwhile := c.written[key]; !meanwhile && (!ok || have != value) {
				same = false
			}
		})
	}
	return same, last, err
}

// complete reports whether all of so many entries that are believed to be there were read.
func (c *check[K, V]) complete(actual int, believed func(K) (V, bool)) bool {
	read := len(c.seen)
	for key := range c.written {
		if _, ok := c.seen[key]; ok {
			read--
		}
		if _, ok := believed(key); ok {
			actual--
		}
	}
	return read == actual
}

// ResyncSome is a part of a Resync: it reads some more than so many entries, until the last part, which has done set. Writes in between are allowed,
// and what they write is not compared. Once a difference is found it reads the whole map.
func (t *Table[K, V]) ResyncSome(most int) (repairs delta.Repairs[K], done bool, err error) {
	if t.reread {
		repairs, err = t.Resync()
		return repairs, true, err
	}
	if t.check == nil {
		t.check = &check[K, V]{reading: t.kernel.Read(), seen: map[K]struct{}{}, written: map[K]struct{}{}}
	}
	same, last, err := t.check.part(most, t.state.Believed)
	switch {
	case err != nil || !same || last && !t.check.complete(t.state.Actual(), t.state.Believed):
		repairs, err = t.reload()
		return repairs, true, err
	case last:
		t.check = nil
	}
	return delta.Repairs[K]{}, last, nil
}
