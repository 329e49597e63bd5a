package corpus

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/model"
)

// Where a namespace gives a name of ports more numbers than count, all engines read rules alike, also after changes.
func TestRandomCrowdsOfPortNumbersAreJudgedAlike(t *testing.T) {
	engines := []Engine{&Compiled{}, &Compiled{Wide: true}, &Compiled{Interpret: true}}
	pairs, closed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		from, to := Crowd(t, DrawModel(t)), Crowd(t, DrawModel(t))
		steps := DrawChange(t, from, to)
		probes := append(CrowdProbes(t, to), DrawProbes(t, to)...)
		agree(t, engines, to, probes, func(line string) []byte {
			text, err := Format("Random counter-example (§7).", to, line)
			if err != nil {
				t.Fatal(err)
			}
			return text
		})
		if err := Agree([]Engine{&changing{Compiled{}, from, steps}}, to, probes); err != nil {
			t.Fatal(err)
		}
		pairs += len(probes)
		closed += len(probesOfCrowd(t, to, probes))
	})
	if closed == 0 {
		t.Error("no packet was judged otherwise than without a limit")
	}
	t.Logf("%d policy-packet pairs, %d that the limit decides", pairs, closed)
}

// probesOfCrowd are those that are judged otherwise if one pod of the crowd has no ports, so that all numbers of others count.
func probesOfCrowd(t *rapid.T, updates []model.Update, probes []Probe) (differ []Probe) {
	with, without := &Oracle{}, &Oracle{}
	smaller := make([]model.Update, 0, len(updates))
	for _, u := range updates {
		if e, ok := u.(model.EndpointUpdate); ok && e.ID.Name == "crowd0" {
			bare := *e.Endpoint
			bare.Ports = nil
			u = model.EndpointUpdate{ID: e.ID, Endpoint: &bare}
		}
		smaller = append(smaller, u)
	}
	if err := with.Load(updates); err != nil {
		t.Fatal(err)
	}
	if err := without.Load(smaller); err != nil {
		t.Fatal(err)
	}
	for _, p := range probes {
		a, _ := with.Judge(p.Endpoint, p.Direction, p.Packet)
		b, _ := without.Judge(p.Endpoint, p.Direction, p.Packet)
		if a.Allow != b.Allow {
			differ = append(differ, p)
		}
	}
	return differ
}
