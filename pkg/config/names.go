package config

import (
	"math"
	"strings"

	"github.com/margay-project/margay/pkg/suggest"
)

// meantBy is the setting that an unknown name may have been meant for; nil: there is none like it.
func meantBy(name string) *Setting {
	names := make([]string, 0, len(settings))
	for _, s := range settings {
		names = append(names, s.Name)
	}
	// However it is spelt elsewhere: logLevel, log_level.
	folded := strings.ReplaceAll(strings.ToLower(name), "_", "-")
	best, distance := nearest(folded, names)
	if distance > max(2, len(name)/3) {
		return nil
	}
	return find(best)
}

// nearest is the candidate that takes the fewest edits to get to, the first of several.
func nearest(name string, candidates []string) (best string, distance int) {
	distance = math.MaxInt
	for _, c := range candidates {
		if d := suggest.Edits(name, c); d < distance {
			best, distance = c, d
		}
	}
	return best, distance
}
