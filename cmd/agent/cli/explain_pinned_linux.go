package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/margay-project/margay/pkg/calc"
	bpfplane "github.com/margay-project/margay/pkg/dataplane/bpf"
	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/model"
)

// pinned explains by the policy that an agent has left in the kernel. asked is the error of the agent that was asked first.
func (o *explainOptions) pinned(cmd *cobra.Command, r explain.Request, asked error) (*explain.Explanation, error) {
	if r.SourceAddr.IsValid() {
		return nil, fmt.Errorf("%w; whose the address %s is cannot be said without an agent", asked, r.SourceAddr)
	}
	m, err := o.openPinned(asked)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	explanation, err := explainPinned(m.state, r)
	if err != nil {
		return nil, fmt.Errorf("no agent can answer, and the kernel's maps know only pods of this node and addresses: %w", err)
	}
	fmt.Fprintln(cmd.ErrOrStderr(), o.leftBehind(asked))
	return explanation, nil
}

// thisNode stands for the node's name, which the maps do not have.
const thisNode = "this-node"

func explainPinned(state *bpfplane.PinnedState, r explain.Request) (*explain.Explanation, error) {
	judge := &pinnedJudge{state: state, pods: map[model.EndpointID]bpfplane.PinnedEndpoint{}}
	updates := []model.Update{model.NodeUpdate{Name: thisNode, Node: &model.Node{Addrs: state.NodeAddrs()}}}
	for _, ep := range state.Endpoints() {
		id := ep.ID
		if id.Name == "" {
			id = model.WorkloadID("", fmt.Sprintf("ifindex-%d", ep.Ifindex)) // it has policy, whatever it is called
		}
		judge.pods[id] = ep
		updates = append(updates, model.EndpointUpdate{ID: id, Endpoint: &model.Endpoint{Node: thisNode, Addrs: ep.Addrs}})
	}
	graph := calc.New("")
	graph.Apply(append(updates, model.InSync{}))
	graph.Flush()
	question, err := explain.Resolve(graph, r)
	if err != nil {
		return nil, err
	}
	return explain.Answer(question, judge)
}

// pinnedJudge evaluates the policy in the pinned maps.
type pinnedJudge struct {
	state *bpfplane.PinnedState
	pods  map[model.EndpointID]bpfplane.PinnedEndpoint
}

// Pod implements explain.Judge.
func (j *pinnedJudge) Pod() string { return "pod of this node" }

// Bounds implements explain.Judge.
func (j *pinnedJudge) Bounds(of explain.End, d model.Direction) ([]uint32, error) {
	return j.state.Bounds(j.pods[of.Endpoint], d)
}

// Side implements explain.Judge.
func (j *pinnedJudge) Side(of explain.End, d model.Direction, p model.Packet) (*explain.Side, error) {
	v, err := j.state.Judge(j.pods[of.Endpoint], d, p)
	if errors.Is(err, bpfplane.ErrService) {
		return nil, fmt.Errorf("%w, and policy judges the backend that kube-proxy chooses: give the address of a backend, or start margay run", err)
	}
	if err != nil {
		return nil, err
	}
	s := &explain.Side{Verdict: explain.VerdictDeny, Tier: v.By.Tier, Namespace: v.By.Policy.Namespace, Name: v.By.Policy.Name, Tiers: []explain.TierAnswer{}}
	if v.Allow {
		s.Verdict = explain.VerdictAllow
	}
	s.APIVersion, s.Kind = v.By.Policy.Kind.API()
	describePinned(s, v, of.Endpoint.String(), d)
	return s, nil
}

// describePinned says what decided, in the words of an explanation by objects where the maps know as much.
func describePinned(s *explain.Side, v bpfplane.PinnedVerdict, pod string, d model.Direction) {
	var policies []string
	for _, id := range v.Policies {
		policies = append(policies, id.Policy.ObjectText())
	}
	_, ofNamespace := model.NamespaceOfProfile(v.By.Policy.Name)
	switch {
	case v.By.Point == 0 && v.Text != "":
		s.Decision, s.Rule, s.Reason = explain.DecisionRule, v.Text, "by the rule "+v.Text
	case v.By.Point == 0:
		s.Decision, s.Rule = explain.DecisionRule, "no-entry"
		s.Reason = "no entry of the policy of " + pod + " knows this packet, which denies"
	case v.By.Point == model.AtEndOfTier:
		s.Decision, s.Rule = explain.DecisionEndOfTier, "end-of-tier"
		s.Reason = fmt.Sprintf("no %s rule of the policies that select %s matches (%s)", d, pod, strings.Join(slices.Compact(policies), ", "))
	case v.By.Point == model.AtNoProfile:
		s.Decision, s.Rule = explain.DecisionNoPolicy, "no-profile-match"
		s.Reason = "no policy allows it, and nothing else does"
	case v.By.Policy.Kind == model.KindProfile && ofNamespace && len(policies) == 0:
		s.Decision, s.Rule = explain.DecisionNoPolicy, fmt.Sprintf("%s[%d]", d, v.By.Index)
		s.Reason = fmt.Sprintf("no policy selects %s for %s", pod, d)
	case v.By.Policy.Kind == model.KindProfile:
		s.Decision, s.Rule = explain.DecisionNoPolicy, fmt.Sprintf("%s[%d]", d, v.By.Index)
		s.Reason = "no policy decides, and " + v.By.Policy.ObjectText() + " does"
	default:
		s.Decision, s.Rule = explain.DecisionRule, fmt.Sprintf("%s[%d]", d, v.By.Index)
		s.Reason = fmt.Sprintf("by %s %s", v.By.Policy.ObjectText(), s.Rule)
		if v.By.Tier != model.TierDefault {
			s.Reason += " in tier " + v.By.Tier
		}
	}
}
