package dataplane

import (
	"errors"
	"maps"
	"strings"
	"testing"
)

// Policy on interfaces outside of the prefix is left as it is while one of these is there, and while that is not known.
func TestInside(t *testing.T) {
	errAsked := errors.New("no memory")
	for name, c := range map[string]struct {
		enforced, there []string
		err             error
		want            string // in the error; empty: there is none
		asked           int    // about how many interfaces
	}{
		"nothing is enforced":        {},
		"all are inside":             {enforced: []string{"eni1", "eni2"}, there: []string{"eni1", "cali1"}},
		"one is outside":             {enforced: []string{"eni1", "cali1", "cali2"}, there: []string{"eni1", "cali1"}, want: `than "eni" enforces policy on interfaces of pods (cali1)`, asked: 2},
		"those outside have gone":    {enforced: []string{"eni1", "cali1"}, there: []string{"eni1"}, asked: 1},
		"which are there is unknown": {enforced: []string{"cali1"}, err: errAsked, want: "find out whether an agent with another prefix enforces policy here: no memory", asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			enforced, asked := map[string]bool{}, 0
			for _, n := range c.enforced {
				enforced[n] = true
			}
			before := maps.Clone(enforced)
			err := Inside("eni", enforced, func(names map[string]bool) (map[string]bool, error) {
				asked = len(names)
				there := map[string]bool{}
				for _, n := range c.there {
					if names[n] {
						there[n] = true
					}
				}
				return there, c.err
			})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || c.err != nil && !errors.Is(err, c.err) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if asked != c.asked || !maps.Equal(enforced, before) {
				t.Errorf("asked about %d interfaces, want %d; of %v it made %v", asked, c.asked, before, enforced)
			}
		})
	}
}
