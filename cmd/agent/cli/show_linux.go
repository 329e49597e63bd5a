package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/margay-project/margay/pkg/agent"
	"github.com/margay-project/margay/pkg/inspect"
)

func showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show", Short: "Show what is enforced: the agent's state, flows and drops", Args: subcommandOnly, RunE: help,
		SuggestFor: []string{"get", "list", "describe", "status", "endpoints", "flows"},
	}
	cmd.AddCommand(showStatusCommand(), showEndpointsCommand(), showPoliciesCommand(), showStagedCommand(), showSetsCommand(), showProblemsCommand(),
		showRulesCommand(), showFlowsCommand(), showDropsCommand())
	return cmd
}

// orEmpty makes JSON say [] rather than null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func showStatusCommand() *cobra.Command {
	var o showOptions
	cmd := &cobra.Command{Use: "status", Aliases: []string{"state", "agent"}, Short: "The agent's state", Args: noArguments("")}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return o.show(cmd, func(w io.Writer) error {
			answer, err := o.askOrRead(cmd.Context(), "/v1/status", nil)
			if errors.Is(err, inspect.ErrNotRunning) || errors.Is(err, inspect.ErrSilent) {
				return o.showLeft(w, err)
			}
			if err != nil {
				return err
			}
			return o.output.write(w, answer.Status, func(w io.Writer) error { return writeStatus(w, answer.Status) })
		})
	}
	o.register(cmd.Flags())
	return cmd
}

// asking is a way to ask an agent.
type asking func(ctx context.Context, path string, parameters url.Values) (*inspect.Answer, error)

// fromAgent reads one part of the agent's answer.
func fromAgent[T any](ask asking, path string, pick func(*inspect.Answer) []T) func(*cobra.Command, []string) ([]T, error) {
	return func(cmd *cobra.Command, _ []string) ([]T, error) {
		answer, err := ask(cmd.Context(), path, nil)
		if err != nil {
			return nil, err
		}
		return pick(answer), nil
	}
}

func showEndpointsCommand() *cobra.Command {
	var o showOptions
	cmd := &cobra.Command{
		Use: "endpoints", Aliases: []string{"endpoint", "ep", "eps", "pods", "pod", "po"},
		Short: "Local pods: interface, policies, programs", Args: noArguments("pod"),
	}
	o.register(cmd.Flags(), "namespace", "pod", "sort-by")
	return showList(&o, cmd, listing[inspect.EndpointRow]{
		read: orPinned(&o, fromAgent(o.askOrRead, "/v1/endpoints", func(a *inspect.Answer) []inspect.EndpointRow { return a.Endpoints }),
			func(m *pinnedMaps, _ []string) ([]inspect.EndpointRow, error) { return m.endpointRows() }),
		keep:  func(e *inspect.EndpointRow) bool { return o.selects(e.Namespace, e.Name) },
		table: endpointTable,
	})
}

func showSetsCommand() *cobra.Command {
	var o showOptions
	cmd := &cobra.Command{Use: "sets", Aliases: []string{"set"}, Short: "Sets of addresses that rules refer to", Args: noArguments("")}
	o.register(cmd.Flags(), "namespace", "sort-by")
	return showList(&o, cmd, listing[inspect.SetRow]{
		read: orPinned(&o, fromAgent(o.askOrRead, "/v1/sets", func(a *inspect.Answer) []inspect.SetRow { return a.Sets }),
			func(m *pinnedMaps, _ []string) ([]inspect.SetRow, error) { return m.state.Sets() }),
		keep:  func(s *inspect.SetRow) bool { return o.namespace == "" || slices.Contains(s.Namespaces, o.namespace) },
		table: setTable,
	})
}

func showProblemsCommand() *cobra.Command {
	var o showOptions
	cmd := &cobra.Command{
		Use: "problems", Aliases: []string{"problem"}, Short: "Objects that are not enforced as written", Args: noArguments(""),
	}
	o.register(cmd.Flags(), "namespace", "sort-by")
	return showList(&o, cmd, listing[inspect.ProblemRow]{
		read:  orManifests(&o, fromAgent(o.ask, "/v1/problems", func(a *inspect.Answer) []inspect.ProblemRow { return a.Problems })),
		keep:  func(p *inspect.ProblemRow) bool { return o.namespace == "" || p.Namespace == o.namespace },
		table: problemTable,
	})
}

// orManifests says where problems of objects are found while no agent runs: the kernel's maps do not have them.
func orManifests[T any](o *showOptions, ask func(*cobra.Command, []string) ([]T, error)) func(*cobra.Command, []string) ([]T, error) {
	return func(cmd *cobra.Command, args []string) ([]T, error) {
		list, err := ask(cmd, args)
		if errors.Is(err, inspect.ErrNotRunning) {
			return nil, fmt.Errorf("no agent answers on %s, and only an agent knows the problems of objects: start margay run, "+
				"choose another agent with --instance or --socket, or check manifests with margay check --dir DIR", o.socketPath())
		}
		return list, err
	}
}

func showRulesCommand() *cobra.Command {
	var o showOptions
	cmd := &cobra.Command{
		Use: "rules NAMESPACE/POD", Aliases: []string{"rule"}, Short: "The ordered match table of a local pod, with counts",
		Args:              exactly(1, "one local pod, NAMESPACE/POD; see margay show endpoints"),
		ValidArgsFunction: completePods(1),
	}
	o.register(cmd.Flags(), "verdict", "sort-by")
	return showList(&o, cmd, listing[inspect.RuleRow]{
		read: orPinned(&o, func(cmd *cobra.Command, args []string) ([]inspect.RuleRow, error) {
			answer, err := o.askOrRead(cmd.Context(), "/v1/rules", url.Values{"endpoint": {args[0]}})
			if err != nil {
				return nil, err
			}
			return answer.Rules, nil
		}, func(m *pinnedMaps, args []string) ([]inspect.RuleRow, error) {
			return m.state.RuleRows(agent.ParseEndpoint(args[0]))
		}),
		keep:  func(r *inspect.RuleRow) bool { return o.verdict == "" || strings.EqualFold(r.Action, o.verdict) },
		table: ruleTable,
	})
}

func writeStatus(w io.Writer, s *inspect.StatusReport) error {
	t := table{header: []string{"agent", statusText(s)}}
	t.add("version", s.Version)
	t.add("node", s.Node)
	t.add("dataplane", dataplaneText(s))
	t.add("started", s.Started.Format(time.RFC3339))
	if !s.Applied.IsZero() {
		t.add("last applied", fmt.Sprintf("%s, took %s", s.Applied.Format(time.RFC3339), brief(time.Duration(s.TookSeconds*float64(time.Second)))))
	}
	t.add("applied", fmt.Sprintf("%s, %d of them failed", count(int(s.Applies), "time"), s.Failed))
	if s.InSync {
		t.add("endpoints", fmt.Sprintf("%d, %d of them enforced", s.Endpoints, s.Enforced))
		t.add("closed interfaces", strconv.Itoa(s.Closed))
	}
	problems := strconv.Itoa(s.Problems)
	if s.Problems > 0 {
		problems += "; see margay show problems"
	}
	t.add("problems", problems)
	for _, k := range s.Kinds {
		t.add(k.Kind, kindText(k))
	}
	return t.write(w)
}

// dataplaneText names the dataplane, and says why it is not the preferred one.
func dataplaneText(s *inspect.StatusReport) string {
	if s.Chosen.Reason == "" {
		return s.Dataplane
	}
	return s.Dataplane + ": " + s.Chosen.Reason
}

// statusText is the agent's state in one line.
func statusText(s *inspect.StatusReport) string {
	switch {
	case s.Ready && s.Held != "":
		lines := strings.Split(s.Held, "\n")
		return fmt.Sprintf("ready, with %s held back: %s", count(len(lines), "policy"), strings.Join(lines, "; "))
	case s.Ready:
		return "ready: " + enforcedText(s)
	case s.Error != "" && s.InSync:
		return "not ready: policy is not fully enforced, the agent tries again: " + s.Error
	case s.Error != "":
		return "not ready: " + inheritedText(s) + ", the agent tries again: " + s.Error
	}
	for _, k := range s.Kinds {
		if k.Required && !k.Listed && k.Error != "" {
			return "not ready: " + inheritedText(s) + ", waiting for the first list of " + k.Kind + ": " + k.Error
		}
	}
	if s.InSync && len(s.NotReady) > 0 {
		return "not ready: " + strings.Join(s.NotReady, "; ")
	}
	if s.Inherited > 0 {
		return "not ready: " + inheritedText(s) + ", waiting for the first full snapshot of the datastore"
	}
	return "not ready: waiting for the first full snapshot of the datastore"
}

// inheritedText says what is enforced before the agent has enforced anything itself.
func inheritedText(s *inspect.StatusReport) string {
	if s.Inherited == 0 {
		return "nothing has been enforced yet"
	}
	return "policy of the last agent is enforced on " + count(s.Inherited, "interface") + ", and no change is followed yet"
}

// enforcedText says of how many endpoints policy is enforced.
func enforcedText(s *inspect.StatusReport) string {
	if s.Dataplane == "record" {
		return fmt.Sprintf("policy of %s is recorded and not enforced", count(s.Endpoints, "endpoint"))
	}
	text := fmt.Sprintf("policy of %s is enforced", count(s.Endpoints, "endpoint"))
	if s.Enforced < s.Endpoints {
		text = fmt.Sprintf("policy of %d of %s is enforced", s.Enforced, count(s.Endpoints, "endpoint"))
	}
	if rest := s.Endpoints - s.Enforced - s.Waiting; rest == 1 {
		text += ", 1 is not yet"
	} else if rest > 1 {
		text += fmt.Sprintf(", %d are not yet", rest)
	}
	if s.Waiting == 1 {
		text += ", 1 waits for its interface"
	} else if s.Waiting > 1 {
		text += fmt.Sprintf(", %d wait for their interfaces", s.Waiting)
	}
	if s.Closed > 0 {
		text += ", " + count(s.Closed, "interface") + " without a pod closed"
	}
	return text
}

// kindText is how it stands with a kind, in one line.
func kindText(k inspect.KindRow) string {
	text := fmt.Sprintf("%s, %s", k.State, count(k.Objects, "object"))
	if k.Revision > 0 {
		text += fmt.Sprintf(", revision %d", k.Revision)
	}
	if k.Read != "" {
		text += fmt.Sprintf(" of %s (not read: %s)", k.Read, k.NotRead)
	}
	if k.Error != "" {
		text += ": " + k.Error
	}
	return text
}

// endpointProblem describes the problem of an endpoint; empty: it has none.
func endpointProblem(e *inspect.EndpointRow) string {
	if e.Error != "" {
		return e.Error
	}
	if len(e.Attached) == 0 {
		return "no program is attached to " + e.Interface
	}
	for _, a := range e.Attached {
		if !a.Attached {
			return fmt.Sprintf("%s is not attached to %s of %s", a.Program, a.Hook, e.Interface)
		}
		if a.Before > 0 {
			return fmt.Sprintf("%s of %s run before %s at %s of %s, which may accept packets before it sees them",
				count(a.Before, "program"), cmp.Or(a.BeforeOf, "other software"), a.Program, a.Hook, e.Interface)
		}
	}
	return ""
}

func endpointTable(rows []inspect.EndpointRow) *table {
	t := &table{
		header: []string{"ENDPOINT", "INTERFACE", "IFINDEX", "ADDRESSES", "INGRESS", "EGRESS", "ATTACHED", "STATE"},
		wide:   []string{"INGRESS BY", "EGRESS BY"},
		none:   "no endpoints on this node",
		whole:  "STATE",
	}
	for i := range rows {
		e := &rows[i]
		var addrs []string
		for _, a := range e.Addrs {
			addrs = append(addrs, a.String())
		}
		for _, p := range e.Sources {
			addrs = append(addrs, "+"+p.String())
		}
		state := endpointProblem(e)
		if e.SourcesError != "" {
			state = strings.TrimPrefix(state+"; "+e.SourcesError, "; ")
		}
		for _, l := range e.Lost {
			state = strings.TrimPrefix(state+"; "+lostText(l), "; ")
		}
		if state == "" {
			state = "ok"
		}
		t.add(endpointName(e), e.Interface, number(uint64(e.Ifindex)), strings.Join(addrs, ","),
			directionText(e, e.Ingress), directionText(e, e.Egress), attachedText(e.Attached), state,
			strings.Join(e.Ingress.Policies, ","), strings.Join(e.Egress.Policies, ","))
	}
	return t
}

func lostText(l inspect.LostAddr) string {
	text := l.Addr.String() + " " + l.Condition
	if l.Owner != "" {
		text += " by " + l.Owner
	}
	return text
}

func directionText(e *inspect.EndpointRow, d inspect.Direction) string {
	if e.Condition == inspect.ConditionClosed {
		return ""
	}
	if len(d.Policies) == 0 {
		return "no policy"
	}
	return count(len(d.Policies), "policy") + ", " + count(d.Rules, "rule")
}

func attachedText(list []inspect.Attachment) string {
	var parts []string
	for _, a := range list {
		if a.Attached {
			parts = append(parts, a.Hook)
		}
	}
	return strings.Join(parts, ",")
}

func ruleTable(rows []inspect.RuleRow) *table {
	t := &table{header: []string{"DIRECTION", "INDEX", "ACTION", "MATCH", "RULE", "PACKETS", "BYTES"}, wide: []string{"NAME", "ID"}, none: "no rules"}
	for _, r := range rows {
		reason, packets, bytes := r.Reason, strconv.FormatUint(r.Packets, 10), strconv.FormatUint(r.Bytes, 10)
		if r.NeverReached {
			reason, packets, bytes = reason+" (never reached)", "", ""
		}
		t.add(r.Direction, strconv.Itoa(r.Index), r.Action, readable(r.Match), reason, packets, bytes, r.Rule, number(uint64(r.ID)))
	}
	return t
}

func setTable(rows []inspect.SetRow) *table {
	t := &table{header: []string{"NUMBER", "MEMBERS", "SET", "SOME OF THEM"}, wide: []string{"NAMESPACES", "ID"}, none: "no sets"}
	for _, s := range rows {
		t.add(number(uint64(s.Number)), strconv.Itoa(s.Members), readable(s.Text), strings.Join(s.Some, ", "), strings.Join(s.Namespaces, ","), s.ID)
	}
	return t
}

func problemTable(rows []inspect.ProblemRow) *table {
	t := &table{header: []string{"SEVERITY", "OBJECT", "FIELD", "REASON"}, none: "no problems"}
	for _, p := range rows {
		t.add(p.Severity, p.Object, p.Field, p.Reason)
	}
	return t
}

// number is a number, or nothing for zero.
func number(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}
