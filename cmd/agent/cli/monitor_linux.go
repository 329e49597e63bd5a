package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/margay-project/margay/pkg/flows"
	"github.com/margay-project/margay/pkg/inspect"
)

// askAgain is how often a monitor looks for an agent while none runs.
const askAgain = time.Second

func monitorCommand() *cobra.Command {
	var o monitorOptions
	cmd := &cobra.Command{
		Use:   "monitor",
		Short: "Print verdicts as they are reached, with the rule behind each",
		Long: `Print verdicts as they are reached: of first packets of flows, of flows that are judged again after a change, and of
revoked ones, each with the rule that decided. Packets of judged flows reach no verdict of their own.

Any number of monitors see all verdicts; the agent sends them. Without an agent, monitor reads them from the kernel
itself. Filters of different kinds must all fit; of one that is given several times, one value must.`,
		Args: noArguments("pod"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := o.open(cmd.OutOrStdout(), cmd.ErrOrStderr(), time.Now())
			if err != nil {
				return err
			}
			return m.run(cmd.Context())
		},
	}
	o.register(cmd.Flags())
	return cmd
}

// monitorOptions are the flags of monitor.
type monitorOptions struct {
	instanceFlags
	output                        outputFlag
	namespaces, pods, peers       []string
	ports                         []string
	verdict, direction, sinceText string
}

func (o *monitorOptions) register(flags *pflag.FlagSet) {
	flags.StringSliceVarP(&o.namespaces, "namespace", "n", nil, "only pods of this `namespace` (repeatable)")
	flags.StringSliceVar(&o.pods, "pod", nil, "only pods whose `name`, or namespace/name, begins with this (repeatable)")
	flags.Var(&choice{&o.verdict, []string{flows.Allow, flows.Deny}, "verdict"}, "verdict", "only this verdict: allow or deny")
	flags.Var(&choice{&o.direction, []string{flows.Ingress, flows.Egress}, "direction"}, "direction", "only this direction of the pod: ingress or egress")
	flags.StringSliceVar(&o.peers, "peer", nil, "only flows whose other end has this `address`, CIDR, or beginning of a name (repeatable)")
	flags.StringSliceVar(&o.ports, "port", nil, "only flows to this `port` (repeatable)")
	flags.StringVar(&o.sinceText, "since", "", "include kept verdicts since this time: a `duration` as in 5m, or a time as in 2006-01-02T15:04:05Z")
	grouped(flags, groupSelection, "namespace", "pod", "verdict", "direction", "peer", "port", "since")
	// The environment of an agent beside it must not choose the records that a monitor shows.
	o.instanceFlags.register(flags)
	o.output.register(flags, "text", "json")
}

// open makes the monitor that the flags ask for.
func (o *monitorOptions) open(out, errs io.Writer, now time.Time) (*flowMonitor, error) {
	query := url.Values{"namespace": o.namespaces, "pod": o.pods, "peer": o.peers, "port": o.ports}
	if o.verdict != "" {
		query.Set("verdict", o.verdict)
	}
	if o.direction != "" {
		query.Set("direction", o.direction)
	}
	filter, err := flows.ParseFilter(query)
	if err != nil {
		return nil, fmt.Errorf("--%w", err) // of which the first word is the flag
	}
	since, err := sinceWhen(o.sinceText, now)
	if err != nil {
		return nil, err
	}
	return &flowMonitor{instance: o.instanceFlags, asJSON: o.output == "json", query: query, filter: filter, since: since, out: out, errs: errs}, nil
}

// sinceWhen is the time that text means; now if it is empty.
func sinceWhen(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return now, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("--since %q: want a duration as in 5m, or a time as in 2006-01-02T15:04:05Z", text)
	}
	return at, nil
}

// flowMonitor prints records.
type flowMonitor struct {
	instance  instanceFlags
	asJSON    bool
	query     url.Values
	filter    flows.Filter
	since     time.Time // of the next record: later than the last one that was printed
	dataplane string    // of the last agent
	out, errs io.Writer
}

// run prints records until ctx ends: from the agent, whichever runs, and at first from the kernel if none does.
func (m *flowMonitor) run(ctx context.Context) error {
	greeting := ""
	for first := true; ; first = false {
		err := m.follow(ctx, greeting)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, inspect.ErrEnded):
			m.notice("the agent has stopped; " + m.meanwhile() + "; waiting for the next one")
			greeting = "an agent runs again"
		case errors.Is(err, inspect.ErrNotRunning) && first:
			if err := m.read(ctx); err != nil || ctx.Err() != nil {
				return err
			}
			greeting = "an agent runs now and sends the events"
			continue
		case !errors.Is(err, inspect.ErrNotRunning):
			return m.instance.explain(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(askAgain):
		}
	}
}

// follow prints the records that the agent sends. greeting is said as soon as one answers.
func (m *flowMonitor) follow(ctx context.Context, greeting string) error {
	m.query.Set("since", m.since.Format(time.RFC3339Nano))
	waiting := m.instance.waiting(m.errs, silence)
	defer waiting.Stop()
	return inspect.Client{Socket: m.instance.socketPath()}.Flows(ctx, m.query, func(message inspect.FlowMessage) error {
		switch {
		case message.Begin != nil:
			waiting.Stop()
			m.dataplane = message.Begin.Dataplane
			if greeting != "" {
				m.notice(greeting)
			}
			if m.dataplane == "record" {
				m.notice("the agent enforces nothing (dataplane record), so there are no verdicts")
			}
			if from := message.Begin.From; !from.IsZero() {
				m.notice("events before " + from.Local().Format(time.RFC3339) + " are not kept any more")
			}
		case message.Lost > 0:
			return m.lost(message.Lost)
		case message.Flow != nil:
			return m.print(message.Flow)
		}
		return nil
	})
}

// meanwhile says what is enforced without an agent, and what becomes of the events that are not read before the next one runs.
func (m *flowMonitor) meanwhile() string {
	switch {
	case m.dataplane == "record":
		return "nothing was enforced"
	case strings.HasPrefix(m.dataplane, "iptables"):
		return "policy stays enforced, and what is judged before the next agent runs is not recorded"
	}
	return "policy stays enforced, and the kernel keeps events for the next agent"
}

func (m *flowMonitor) print(r *flows.Record) error {
	m.since = r.Time.Add(1)
	var err error
	if m.asJSON {
		err = encodeLine(m.out, r)
	} else {
		// The verdict is the first word after the time.
		at, rest, _ := strings.Cut(r.Text(time.Local), "  ")
		_, err = fmt.Fprintln(m.out, at+"  "+screenOf(m.out).word(rest))
	}
	if err != nil {
		return fmt.Errorf("print events: %w", err)
	}
	return nil
}

// lost says among the records that some are missing.
func (m *flowMonitor) lost(n uint64) error {
	if m.asJSON {
		return encodeLine(m.out, inspect.FlowMessage{Lost: n})
	}
	_, err := fmt.Fprintf(m.out, "%s lost here: this monitor was too slow for them\n", count(int(n), "event"))
	return err
}

// notice says something about the monitor itself.
func (m *flowMonitor) notice(text string) { fmt.Fprintln(m.errs, text) }

func encodeLine[T any](w io.Writer, v T) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
