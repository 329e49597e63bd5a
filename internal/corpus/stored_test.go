package corpus

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/margay-project/margay/pkg/kinds"
)

// A valid manifest means the same when a datastore has it: a stored object is checked for less, and never read in another way.
func TestValidManifestsMeanTheSameInADatastore(t *testing.T) {
	cases, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	compared := map[string]bool{} // many cases use the same cluster
	for _, c := range cases {
		for _, d := range c.Documents {
			if d.Stored || d.APIVersion == APIVersion || compared[string(d.Text)] {
				continue
			}
			written := kinds.Parse("a.yaml", d.Text)
			if len(written) != 1 || !written[0].OK {
				continue
			}
			stored := parseStored("a.yaml", d.Text)[0]
			if !stored.OK || !reflect.DeepEqual(stored.Updates, written[0].Updates) {
				t.Errorf("%s: %s %s means\n%s\nas a manifest, and in a datastore\n%s\n%v", c.Name, d.Kind, d.Name,
					fmt.Sprint(written[0].Updates), fmt.Sprint(stored.Updates), stored.Problems)
			}
			compared[string(d.Text)] = true
		}
	}
	if len(compared) < 500 {
		t.Errorf("only %d objects were compared", len(compared))
	}
}
