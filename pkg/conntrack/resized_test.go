package conntrack

import (
	"errors"
	"testing"
)

func TestATableThatIsResizedIsReadAgain(t *testing.T) {
	none, broken := errors.New("no such file"), errors.New("no answer")
	for name, test := range map[string]struct {
		buckets []uint32 // as read one after another; 0: cannot be read
		pass    error
		passes  int
		want    error
	}{
		"as before":              {[]uint32{8, 8}, nil, 1, nil},
		"resized once":           {[]uint32{8, 16, 16}, nil, 2, nil},
		"resized all the time":   {[]uint32{8, 16, 8, 16}, nil, mostPasses, ErrResized},
		"number not known":       {[]uint32{0}, nil, 1, nil},
		"number not known later": {[]uint32{8, 0}, nil, 1, nil},
		"a pass that fails":      {[]uint32{8, 16}, broken, 1, broken},
	} {
		passes, reads := 0, 0
		err := unlessResized(func() (uint32, error) {
			n := test.buckets[reads]
			reads++
			if n == 0 {
				return 0, none
			}
			return n, nil
		}, func() error {
			passes++
			return test.pass
		})
		if passes != test.passes || !errors.Is(err, test.want) {
			t.Errorf("%s: %d passes, %v; want %d, %v", name, passes, err, test.passes, test.want)
		}
	}
}
