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

// The same where pods of many namespaces give a name so many numbers that each has a share of those that count. A model costs seconds.
func TestRandomCrowdsOfManyNamespacesAreJudgedAlike(t *testing.T) {
	type drawn struct {
		from, to []model.Update
		steps    [][]model.Update
		probes   []Probe
	}
	generator := rapid.Custom(func(t *rapid.T) (d drawn) {
		d.from, d.to = Crowds(t, DrawModel(t)), Crowds(t, DrawModel(t))
		d.steps, d.probes = DrawChange(t, d.from, d.to), CrowdProbes(t, d.to)
		return d
	})
	pairs, decided := 0, 0
	for seed := range 10 {
		d := generator.Example(seed)
		for _, e := range []Engine{&Compiled{}, &changing{Compiled{}, d.from, d.steps}} {
			if err := Agree([]Engine{e}, d.to, d.probes); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		pairs += len(d.probes)
		decided += len(probesDecidedBy(t, d.to, d.probes, func(id model.EndpointID) bool { return id.Name == "crowd" && id.Namespace > "crowd-c" }))
	}
	if decided == 0 {
		t.Error("no packet was judged otherwise than without the other namespaces")
	}
	t.Logf("%d policy-packet pairs, %d that other namespaces decide", pairs, decided)
}

// probesOfCrowd are those that are judged otherwise if one pod of the crowd has no ports, so that all numbers of others count.
func probesOfCrowd(t *rapid.T, updates []model.Update, probes []Probe) (differ []Probe) {
	return probesDecidedBy(t, updates, probes, func(id model.EndpointID) bool { return id.Name == "crowd0" })
}

// probesDecidedBy are those that are judged otherwise if these pods have no ports.
func probesDecidedBy(t rapid.TB, updates []model.Update, probes []Probe, pods func(model.EndpointID) bool) (differ []Probe) {
	with, without := &Oracle{}, &Oracle{}
	smaller := make([]model.Update, 0, len(updates))
	for _, u := range updates {
		if e, ok := u.(model.EndpointUpdate); ok && e.Endpoint != nil && pods(e.ID) {
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
