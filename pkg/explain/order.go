package explain

import (
	"fmt"
	"math"
	"strconv"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/model"
)

// OrderRow is one step of the total order by which one direction of a pod is judged (D-15).
type OrderRow struct {
	Direction string   `json:"direction"`
	Step      string   `json:"step"`           // see the constants
	Tier      string   `json:"tier,omitempty"` // empty: behind all tiers
	TierOrder *float64 `json:"tierOrder"`      // null: the tier has no order or does not exist, or the step is in no tier
	// APIVersion tells kinds of one name apart. Profiles have none.
	APIVersion string   `json:"apiVersion,omitempty"`
	Kind       string   `json:"kind,omitempty"`
	Namespace  string   `json:"namespace,omitempty"`
	Name       string   `json:"name,omitempty"`
	Order      *float64 `json:"order"`            // of a policy; null: it has none
	Rules      int      `json:"rules"`            // of the object in this direction
	Action     string   `json:"action,omitempty"` // of an end: Deny or Pass
	Staged     bool     `json:"staged,omitempty"`
	// NoEffect says why it decides no packet: it is staged, refused, or behind a rule or a tier that decides every packet.
	// Empty: it may decide.
	NoEffect string `json:"noEffect,omitempty"`
	Why      string `json:"why"` // it stands here
}

// Steps of the total order.
const (
	StepPolicy    = "policy"
	StepEndOfTier = "end of tier"
	StepProfile   = "profile"
	StepEnd       = "end" // no profile has decided
)

// FindPod is the one pod that a text names as SRC of a Request may, or by its address. namespace is that of a name without
// one.
func FindPod(g *calc.Graph, text, namespace string) (model.EndpointID, error) {
	from, err := lookup{g, Request{Src: text, Namespace: namespace}}.source()
	if err != nil {
		return model.EndpointID{}, err
	}
	var pods []model.EndpointID
	for _, p := range from.parties {
		if p.ends[0].IsPod() {
			pods = append(pods, p.ends[0].Endpoint)
		}
	}
	switch len(pods) {
	case 0:
		return model.EndpointID{}, fmt.Errorf("%s is no pod", from.text)
	case 1:
		return pods[0], nil
	}
	return model.EndpointID{}, fmt.Errorf("%s is %d pods; give one of them, such as %s", from.text, len(pods), pods[0])
}

// FindPod is the function of this name over the objects of the State.
func (s *State) FindPod(text, namespace string) (model.EndpointID, error) {
	return FindPod(s.graph, text, namespace)
}

// Order lists what judges a pod, ingress first, in the order in which it is asked.
func (s *State) Order(pod model.EndpointID) ([]OrderRow, error) {
	var rows []OrderRow
	for _, d := range []model.Direction{model.Ingress, model.Egress} {
		policy, err := s.policy(pod, d)
		if err != nil {
			return nil, err
		}
		o := &ordering{graph: s.graph, reach: reach{direction: d.String()}}
		for i := range policy.Tiers {
			o.tier(&policy.Tiers[i])
		}
		for i, p := range policy.Profiles {
			o.profile(i, p)
		}
		o.add(OrderRow{Step: StepEnd, Action: model.Deny.String(), Why: "no rule of a profile matches"})
		rows = append(rows, o.rows...)
	}
	return rows, nil
}

// ordering collects the rows of one direction.
type ordering struct {
	graph *calc.Graph
	reach reach
	rows  []OrderRow
	tiers []string // so far
}

func (o *ordering) add(row OrderRow) {
	row.Direction = o.reach.direction
	if row.NoEffect == "" {
		row.NoEffect = o.reach.notReached()
	}
	o.rows = append(o.rows, row)
}

func (o *ordering) tier(t *model.TierPolicy) {
	place := o.whyTier(t.Name)
	o.tiers = append(o.tiers, t.Name)
	order, enforced := o.tierOrder(t.Name), 0
	var before model.PolicyKey
	for i, p := range t.Policies {
		row := policyStep(p)
		row.Step, row.Tier, row.TierOrder = StepPolicy, t.Name, order
		own, _ := o.graph.PlaceOf(p.Key)
		row.Order = finite(own.Order)
		switch {
		case p.StagedAction == model.StagedDelete:
			row.Why = "beside the policy that it stands for"
		case i == 0:
			row.Why = place
		default:
			last, _ := o.graph.PlaceOf(before)
			row.Why = whyBehind(last.Order, before, own.Order, p.Key)
		}
		if p.StagedAction != model.StagedDelete {
			before = p.Key
		}
		o.add(row)
		if !p.Staged {
			enforced++
			o.reach.rules(p)
		}
	}
	end := OrderRow{Step: StepEndOfTier, Tier: t.Name, TierOrder: order, Action: t.Default.String()}
	switch {
	case enforced == 0:
		end.Action, end.Why = model.Pass.String(), "its policies are staged only, so it denies nothing"
	case t.Default == model.Pass:
		end.Why = "its default action"
	default:
		end.Why = "its default action, for what no rule of its policies decides"
	}
	o.add(end)
	if enforced > 0 {
		o.reach.endOfTier(t)
	}
}

func (o *ordering) profile(i int, p *model.PolicyRules) {
	row := policyStep(p)
	row.Step, row.Why = StepProfile, "behind all tiers"
	if i > 0 {
		row.Why = "as the pod lists its profiles"
	}
	o.add(row)
	o.reach.rules(p)
	o.reach.endOfProfile()
}

// policyStep returns the row of a policy or profile, as far as its rules in this direction decide it.
func policyStep(p *model.PolicyRules) OrderRow {
	row := OrderRow{Namespace: p.Key.Namespace, Name: p.Key.Name, Staged: p.Staged}
	switch {
	case p.Staged && p.Refused != "":
		row.NoEffect = "staged, not evaluated: " + p.Refused
	case p.Staged && p.StagedAction == model.StagedDelete:
		row.NoEffect = "staged: " + p.Key.Enforced().ObjectText() + " would not apply"
	case p.Staged:
		row.NoEffect = "staged, not enforced"
	case p.Refused != "":
		row.NoEffect = "refused: " + p.Refused
	}
	row.APIVersion, row.Kind = p.Key.Kind.API()
	for i := range p.Rules {
		if i == 0 || p.Rules[i].Index != p.Rules[i-1].Index {
			row.Rules++
		}
	}
	return row
}

// whyTier is why a tier stands behind those so far.
func (o *ordering) whyTier(name string) string {
	tier, ok := o.graph.FindTier(name)
	if !ok {
		return "tier " + name + " does not exist: behind all that do"
	}
	text := "tier order " + OrderText(tier.Order)
	if len(o.tiers) == 0 {
		return text
	}
	before := o.tiers[len(o.tiers)-1]
	last, _ := o.graph.FindTier(before)
	if last.Order == tier.Order {
		return text + " as tier " + before + ", whose name is before its"
	}
	return text + ", behind " + OrderText(last.Order)
}

func (o *ordering) tierOrder(name string) *float64 {
	tier, ok := o.graph.FindTier(name)
	if !ok {
		return nil
	}
	return finite(tier.Order)
}

// whyBehind is why a policy stands behind another of its tier.
func whyBehind(before float64, first model.PolicyKey, order float64, key model.PolicyKey) string {
	if before != order {
		return "order " + OrderText(order) + ", behind " + OrderText(before)
	}
	return fmt.Sprintf("order %s as the one before: by name/namespace/kind, %s is behind %s", OrderText(order), key.SortKey(), first.SortKey())
}

// OrderText is the order of a tier or policy: "10", "0.5", "none".
func OrderText(order float64) string {
	if math.IsInf(order, 1) {
		return "none"
	}
	return strconv.FormatFloat(order, 'f', -1, 64)
}

// finite is an order as JSON has it.
func finite(order float64) *float64 {
	if math.IsInf(order, 0) {
		return nil
	}
	return &order
}
