package corpus

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/oracle"
	"github.com/margay-project/margay/pkg/model"
)

// Engine judges packets by policy, in its own way.
type Engine interface {
	Name() string
	// Load replaces the engine's state by what the updates say, starting from nothing. They end with InSync.
	Load([]model.Update) error
	// Judge answers for one endpoint and direction. The packet's own side is an address of that endpoint. An error
	// means that there is no answer, and fails the test.
	Judge(model.EndpointID, model.Direction, model.Packet) (model.Verdict, error)
	// JudgeForwarded is Judge for a packet that no node has made, though it may have the address of one.
	JudgeForwarded(model.EndpointID, model.Direction, model.Packet) (model.Verdict, error)
}

// Oracle is internal/oracle as an Engine. The zero value is ready for Load.
type Oracle struct{ cluster *oracle.Cluster }

// Name implements Engine.
func (o *Oracle) Name() string { return "oracle" }

// Load implements Engine. It never fails.
func (o *Oracle) Load(updates []model.Update) error {
	o.cluster = oracle.New(updates)
	return nil
}

// Judge implements Engine. It never fails.
func (o *Oracle) Judge(id model.EndpointID, dir model.Direction, pkt model.Packet) (model.Verdict, error) {
	return o.cluster.Judge(id, dir, pkt), nil
}

// JudgeForwarded implements Engine. It never fails.
func (o *Oracle) JudgeForwarded(id model.EndpointID, dir model.Direction, pkt model.Packet) (model.Verdict, error) {
	return o.cluster.JudgeForwarded(id, dir, pkt), nil
}

// judge is the engine's answer for a packet.
func judge(e Engine, p Probe) (model.Verdict, error) {
	if p.Forwarded {
		return e.JudgeForwarded(p.Endpoint, p.Direction, p.Packet)
	}
	return e.Judge(p.Endpoint, p.Direction, p.Packet)
}

// Run judges every check of every case with the oracle and with the given engines, one subtest per case and engine.
// Each must give the expected answer, and the same verdict as the oracle in all of its parts. Where a case is of
// Kubernetes objects only, oracle.Kubernetes must agree as well; with Calico's, oracle.Objects.
func Run(t *testing.T, cases []Case, engines ...Engine) {
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			reference := &Oracle{}
			if err := reference.Load(c.Updates); err != nil {
				t.Fatal(err)
			}
			t.Run(reference.Name(), func(t *testing.T) { c.run(t, reference, reference) })
			if c.Kubernetes != nil {
				t.Run("kubernetes", func(t *testing.T) { c.runObjects(t, c.Kubernetes) })
			}
			if c.Objects != nil {
				t.Run("objects", func(t *testing.T) { c.runObjects(t, c.Objects) })
			}
			for _, e := range engines {
				t.Run(e.Name(), func(t *testing.T) {
					if err := e.Load(c.Updates); err != nil {
						t.Fatalf("%s: %s: load: %v", c.Name, e.Name(), err)
					}
					c.run(t, e, reference)
				})
			}
		})
	}
}

func (c *Case) run(t *testing.T, e Engine, reference *Oracle) {
	for i := range c.Checks {
		check := &c.Checks[i]
		allow := true
		for _, leg := range check.legs() {
			probe := Probe{leg.id, leg.dir, check.Packet, check.NodePort}
			got, err := judge(e, probe)
			if err != nil {
				t.Errorf("%s:%d: %s: %s: %s of %s: %v", check.File, check.Line, check.Text, e.Name(), leg.dir, leg.id, err)
				continue
			}
			allow = allow && got.Allow
			if diff := leg.want.diff(got); diff != "" {
				t.Errorf("%s:%d: %s\n%s, %s of %s:\n%s", check.File, check.Line, check.Text, e.Name(), leg.dir, leg.id, diff)
			}
			if diff := reference.stagedDiff(e, probe, got.Allow); diff != "" {
				t.Errorf("%s:%d: %s\n%s, %s of %s: %s", check.File, check.Line, check.Text, e.Name(), leg.dir, leg.id, diff)
			}
			want, _ := judge(reference, probe)
			if diff := Diff(want, got); diff != "" {
				t.Errorf("%s:%d: %s\n%s, %s of %s, against the oracle (-oracle +%s):\n%s",
					check.File, check.Line, check.Text, e.Name(), leg.dir, leg.id, e.Name(), diff)
			}
		}
		if allow != check.Allow {
			t.Errorf("%s:%d: %s: %s: allow is %v, want %v", check.File, check.Line, check.Text, e.Name(), allow, check.Allow)
		}
	}
}

// evaluator works on the objects as they are written.
type evaluator interface {
	Allows(model.EndpointID, model.Direction, model.Packet) bool
	AllowsForwarded(model.EndpointID, model.Direction, model.Packet) bool
}

// runObjects judges the checks by an evaluator.
func (c *Case) runObjects(t *testing.T, by evaluator) {
	for i := range c.Checks {
		check := &c.Checks[i]
		allow, allows := true, by.Allows
		if check.NodePort {
			allows = by.AllowsForwarded
		}
		for _, leg := range check.legs() {
			allow = allows(leg.id, leg.dir, check.Packet) && allow
		}
		if allow != check.Allow {
			t.Errorf("%s:%d: %s: by the objects: allow is %v, want %v", check.File, check.Line, check.Text, allow, check.Allow)
		}
	}
}

type legCheck struct {
	id   model.EndpointID
	dir  model.Direction
	want *Leg
}

func (c *Check) legs() []legCheck {
	var legs []legCheck
	if c.SrcEndpoint != nil {
		legs = append(legs, legCheck{*c.SrcEndpoint, model.Egress, c.Egress})
	}
	if c.DstEndpoint != nil {
		legs = append(legs, legCheck{*c.DstEndpoint, model.Ingress, c.Ingress})
	}
	return legs
}

// diff says how a verdict differs from what the line states, or "".
func (l *Leg) diff(got model.Verdict) string {
	if l == nil {
		return ""
	}
	if l.By != got.By.String() {
		return fmt.Sprintf("decided by %s, want %s", got.By, l.By)
	}
	if l.Passed != nil && !slices.Equal(l.Passed, texts(got.Passed)) {
		return fmt.Sprintf("passed %q, want %q", texts(got.Passed), l.Passed)
	}
	if l.Logged != nil && !slices.Equal(l.Logged, texts(got.Logged)) {
		return fmt.Sprintf("logged %q, want %q", texts(got.Logged), l.Logged)
	}
	return ""
}

func texts(ids []model.RuleID) []string {
	out := []string{}
	for _, id := range ids {
		out = append(out, id.String())
	}
	return out
}

// Agree loads the updates into the engines and judges the probes with them and with the oracle. It returns the first
// *Disagreement, or an engine's failure to load; nil if all agree.
func Agree(engines []Engine, updates []model.Update, probes []Probe) error {
	reference := &Oracle{}
	for _, e := range append([]Engine{reference}, engines...) {
		if err := e.Load(updates); err != nil {
			return fmt.Errorf("%s: load: %w", e.Name(), err)
		}
	}
	for _, p := range probes {
		want, _ := reference.Judge(p.Endpoint, p.Direction, p.Packet)
		for _, e := range engines {
			got, err := e.Judge(p.Endpoint, p.Direction, p.Packet)
			if err != nil {
				return &Disagreement{e.Name(), p, want, err.Error()}
			}
			if diff := Diff(want, got); diff != "" {
				return &Disagreement{e.Name(), p, want, diff}
			}
			if diff := reference.stagedDiff(e, p, got.Allow); diff != "" {
				return &Disagreement{e.Name(), p, want, diff}
			}
		}
	}
	return nil
}

// Disagreement is a packet that an engine does not judge as the oracle does.
type Disagreement struct {
	Engine string
	Probe  Probe
	Want   model.Verdict // the oracle's
	Reason string        // a difference (-oracle +engine), or why there is no verdict
}

// Error implements error.
func (d *Disagreement) Error() string {
	return fmt.Sprintf("%s does not agree with the oracle on %s\n%s", d.Engine, d.Probe.Line(d.Want), d.Reason)
}

// Diff says how a verdict differs from the oracle's, or "". Engines keep only so many passes and logs.
func Diff(want, got model.Verdict) string {
	trace := bpf.Outcome{}
	want.Passed = want.Passed[:min(len(want.Passed), len(trace.Pass))]
	want.Logged = want.Logged[:min(len(want.Logged), len(trace.Log))]
	got.Passed = got.Passed[:min(len(got.Passed), len(trace.Pass))]
	got.Logged = got.Logged[:min(len(got.Logged), len(trace.Log))]
	return cmp.Diff(Describe(want), Describe(got))
}

// Described is a verdict in words, for comparison and for people.
type Described struct {
	Allow          bool
	By             string
	Passed, Logged []string
}

// Describe puts a verdict into words.
func Describe(v model.Verdict) Described {
	return Described{v.Allow, v.By.Direction.String() + " " + v.By.String(), texts(v.Passed), texts(v.Logged)}
}
