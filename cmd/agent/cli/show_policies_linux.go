package cli

import (
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/inspect/rows"
)

// policiesOptions are the flags of show policies.
type policiesOptions struct {
	showOptions
	dir  string
	pod  string
	live func(*cobra.Command, []string) ([]inspect.PolicyRow, error) // the policies as the agent has them, or the pinned maps
}

func showPoliciesCommand() *cobra.Command {
	var o policiesOptions
	cmd := &cobra.Command{
		Use: "policies", Aliases: []string{"policy", "pol", "netpol", "networkpolicies"},
		Short: "Policies in their total order, or with --for what judges one pod, in order",
		Long: `List all policies in the order in which they are evaluated, with the pods of this node that each applies to.

With --for POD it lists what judges that pod: for each direction the tiers, the policies in them, staged ones too, the
ends of tiers and the profiles, in the order in which they are asked, and why each stands where it stands. POD is a
pod of any node, as SRC of margay explain. With --dir the manifests in a directory are read instead of asking the
agent.`,
		Example: `  margay show policies
  margay show policies --for shop/web
  margay show policies --for shop/web --dir manifests -o json`,
		Args: noArguments("for"),
	}
	o.register(cmd.Flags(), "namespace", "sort-by")
	cmd.Flags().StringVar(&o.pod, "for", "", "the pod, NAMESPACE/NAME, whose order is listed")
	cmd.Flags().Var(manifestsFlag{&o.dir}, "dir", "list by the manifests in this directory instead of asking the agent")
	grouped(cmd.Flags(), groupSelection, "for", "dir")
	_ = cmd.RegisterFlagCompletionFunc("for", completePods(1)) // fails where it is registered already
	o.live = orPinned(&o.showOptions, fromAgent(o.askOrRead, "/v1/policies", func(a *inspect.Answer) []inspect.PolicyRow { return a.Policies }),
		func(m *pinnedMaps, _ []string) ([]inspect.PolicyRow, error) { return m.state.Policies() })
	showList(&o.showOptions, cmd, listing[inspect.PolicyRow]{
		read: o.policies,
		keep: func(p *inspect.PolicyRow) bool { return o.namespace == "" || p.Namespace == o.namespace }, table: policyTable,
	})
	all := cmd.RunE
	order := showList(&o.showOptions, &cobra.Command{}, listing[explain.OrderRow]{read: o.order, table: orderTable}).RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.pod != "" {
			return order(cmd, args)
		}
		return all(cmd, args)
	}
	return cmd
}

func (o *policiesOptions) policies(cmd *cobra.Command, args []string) ([]inspect.PolicyRow, error) {
	if o.dir != "" {
		m, err := loadDirectory(cmd.Context(), o.dir)
		if err != nil {
			return nil, err
		}
		return rows.Policies(explain.NewState(m.updates).Graph()), nil
	}
	return o.live(cmd, args)
}

// order is what judges the pod of --for.
func (o *policiesOptions) order(cmd *cobra.Command, _ []string) ([]explain.OrderRow, error) {
	if o.dir == "" {
		answer, err := o.ask(cmd.Context(), "/v1/order", url.Values{"endpoint": {o.pod}, "namespace": {o.namespace}})
		if err != nil {
			return nil, err
		}
		return answer.Order, nil
	}
	m, err := loadDirectory(cmd.Context(), o.dir)
	if err != nil {
		return nil, err
	}
	state := explain.NewState(m.updates)
	pod, err := state.FindPod(o.pod, o.namespace)
	if err != nil {
		return nil, err
	}
	return state.Order(pod)
}

func policyTable(rows []inspect.PolicyRow) *table {
	t := &table{
		header: []string{"TIER", "ORDER", "KIND", "NAMESPACE", "NAME", "INGRESS OF", "EGRESS OF", "NOTE"}, wide: []string{"TIER ORDER"},
		none: "no policies",
	}
	for _, p := range rows {
		note := ""
		if p.Staged {
			note = "staged, not enforced"
		}
		t.add(p.Tier, orderText(p.Order), p.Kind, p.Namespace, p.Name, number(uint64(p.Ingress)), number(uint64(p.Egress)), note, orderText(p.TierOrder))
	}
	return t
}

// orderText is an order, or nothing.
func orderText(order *float64) string {
	if order == nil {
		return ""
	}
	return explain.OrderText(*order)
}

func orderTable(rows []explain.OrderRow) *table {
	t := &table{header: []string{"DIRECTION", "TIER", "STEP", "ORDER", "RULES", "NOTE", "WHY HERE"}, wide: []string{"TIER ORDER", "API VERSION"}, none: "nothing judges the pod"}
	for _, r := range rows {
		step, rules := objectText(r.Kind, r.Namespace, r.Name), fmt.Sprint(r.Rules)
		if r.Step == explain.StepEndOfTier || r.Step == explain.StepEnd {
			step, rules = r.Step+": "+r.Action, ""
		}
		t.add(r.Direction, r.Tier, step, orderText(r.Order), rules, r.NoEffect, r.Why, orderText(r.TierOrder), r.APIVersion)
	}
	return t
}
