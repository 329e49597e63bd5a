package iptables

import (
	"errors"
	"testing"
)

// What a Stamp says of others since the last one; there was no transaction of ours.
func TestEachPartOfAStampShowsOthers(t *testing.T) {
	last := Stamp{Entries: 5, Size: 700, Generation: 9, Writes: 3, Lost: 1}
	for name, tt := range map[string]struct {
		change              func(*Stamp)
		suspect, unverified bool
	}{
		"nothing":                        {func(*Stamp) {}, false, false},
		"an entry":                       {func(s *Stamp) { s.Entries++ }, true, false},
		"bytes":                          {func(s *Stamp) { s.Size-- }, true, false},
		"an observed write":              {func(s *Stamp) { s.Writes++; s.Generation++ }, true, false},
		"a flag":                         {func(s *Stamp) { s.Dormant = true }, true, false},
		"a write into another table":     {func(s *Stamp) { s.Generation++ }, false, false},
		"lost messages of a transaction": {func(s *Stamp) { s.Generation++; s.Lost++ }, false, true},
		"lost messages of none":          {func(s *Stamp) { s.Lost++ }, false, false},
	} {
		w, now := watch{last: last}, last
		tt.change(&now)
		w.others(now)
		if w.suspect != tt.suspect || w.unverified != tt.unverified || w.last != now {
			t.Errorf("%s: suspect %v, unverified %v, %+v", name, w.suspect, w.unverified, w.last)
		}
	}
}

// What the Stamps before and after a transaction of ours, which adds two entries, say of others.
func TestStampsAroundAWriteShowOthers(t *testing.T) {
	legacy, nft := Stamp{Entries: 5, Size: 700}, Stamp{Generation: 9, Writes: 3, Lost: 1}
	for name, tt := range map[string]struct {
		last, after         Stamp
		err                 error
		suspect, unverified bool
	}{
		"legacy":                            {legacy, Stamp{Entries: 7, Size: 900}, nil, false, true},
		"legacy, an entry of others":        {legacy, Stamp{Entries: 8, Size: 900}, nil, true, false},
		"legacy, an entry less":             {legacy, Stamp{Entries: 6, Size: 900}, nil, true, false},
		"an error":                          {nft, Stamp{Generation: 10, Writes: 4, Lost: 1}, errors.New("lost"), true, false},
		"the only one":                      {nft, Stamp{Generation: 10, Writes: 4, Lost: 1}, nil, false, false},
		"the only one, and messages lost":   {nft, Stamp{Generation: 10, Writes: 3, Lost: 2}, nil, false, false},
		"others in other tables":            {nft, Stamp{Generation: 12, Writes: 4, Lost: 1}, nil, false, false},
		"others in this table":              {nft, Stamp{Generation: 11, Writes: 5, Lost: 1}, nil, false, true},
		"others somewhere, messages lost":   {nft, Stamp{Generation: 11, Writes: 4, Lost: 2}, nil, false, true},
		"nothing of it was observed, again": {nft, Stamp{Generation: 11, Writes: 3, Lost: 1}, nil, false, true},
	} {
		w := watch{last: tt.last}
		w.wrote(tt.last, tt.after, 2, tt.err)
		if w.suspect != tt.suspect || w.unverified != tt.unverified || w.last != tt.after {
			t.Errorf("%s: suspect %v, unverified %v, %+v", name, w.suspect, w.unverified, w.last)
		}
	}
	w := watch{last: nft}
	if w.wrote(Stamp{Generation: 10, Writes: 4, Lost: 1}, Stamp{Generation: 11, Writes: 5, Lost: 1}, 2, nil); !w.suspect {
		t.Error("a write of others before ours is not seen")
	}
}
