package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/explain"
)

// eventRow is one verdict as it was reached in the kernel.
type eventRow struct {
	Time       time.Time      `json:"time"`
	Endpoint   string         `json:"endpoint"` // whose policy judged
	Direction  string         `json:"direction"`
	Verdict    string         `json:"verdict"` // allow or deny
	Rule       string         `json:"rule"`    // what decided
	Src        netip.AddrPort `json:"src"`     // the opener
	Dst        netip.AddrPort `json:"dst"`     // after Service translation
	Protocol   string         `json:"protocol"`
	Logged     []string       `json:"logged,omitempty"` // Log rules on the way
	Passed     []string       `json:"passed,omitempty"` // Pass rules and passing ends of tier on the way
	Note       string         `json:"note,omitempty"`   // revoked, judged again, after translation
	Suppressed uint16         `json:"suppressed,omitempty"`
}

func monitorCommand() *cobra.Command {
	var o showOptions
	cmd := &cobra.Command{
		Use:   "monitor",
		Short: "Print verdicts as they are reached, with the rule behind each; one reader at a time",
		Args:  exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := o.openMaps()
			if err != nil {
				return err
			}
			defer m.Close()
			return monitor(cmd.Context(), cmd.OutOrStdout(), m, &o)
		},
	}
	o.instanceFlags.register(cmd.Flags())
	o.output.register(cmd.Flags(), "text", "json")
	return cmd
}

// monitor prints events until ctx ends.
func monitor(ctx context.Context, w io.Writer, m *bpfmaps.Maps, o *showOptions) error {
	events, err := m.OpenEvents()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { events.Close() })
	defer stop()
	n := newNamer(m, o.names(ctx))
	for {
		e, err := events.Read()
		if errors.Is(err, ringbuf.ErrClosed) || errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		row, err := n.row(&e)
		if err != nil {
			return err
		}
		if o.output == "json" {
			err = json.NewEncoder(w).Encode(row)
		} else {
			_, err = fmt.Fprintln(w, row.text())
		}
		if err != nil {
			return err
		}
	}
}

// namer turns the numbers in events into names. What it has read it keeps: rules of a slot by generation.
type namer struct {
	maps  *bpfmaps.Maps
	names names
	rules map[uint64][]bpf.Rule // by policy word
}

func newNamer(m *bpfmaps.Maps, n names) *namer {
	return &namer{maps: m, names: n, rules: map[uint64][]bpf.Rule{}}
}

func (n *namer) row(e *bpf.Event) (eventRow, error) {
	row := eventRow{
		Time: timeOf(e.TimeNs), Direction: "egress", Verdict: "allow", Protocol: explain.ProtocolName(e.Proto),
		Endpoint: n.names.byIndex[e.Ifindex], Suppressed: e.Suppressed,
	}
	if row.Endpoint == "" {
		row.Endpoint = fmt.Sprintf("ifindex %d", e.Ifindex)
	}
	if e.Flags&uint8(bpf.MargayEventFlagsEVENT_INGRESS) != 0 {
		row.Direction = "ingress"
	}
	if e.Reason != 0 {
		row.Verdict = "deny"
	}
	src, dst := netip.AddrFrom4([4]byte(e.Src[:4])), netip.AddrFrom4([4]byte(e.Dst[:4]))
	if e.Flags&uint8(bpf.MargayEventFlagsEVENT_IPV6) != 0 {
		src, dst = netip.AddrFrom16(e.Src), netip.AddrFrom16(e.Dst)
	}
	row.Src, row.Dst = netip.AddrPortFrom(src, e.Sport), netip.AddrPortFrom(dst, e.Dport)
	row.Note = noteOf(e)
	var err error
	if row.Rule, err = n.ruleName(e.RuleId); err != nil {
		return row, err
	}
	if row.Logged, err = n.trace(e, e.Log[:min(int(e.Nlogs), len(e.Log))]); err != nil {
		return row, err
	}
	row.Passed, err = n.trace(e, e.Pass[:min(int(e.Npasses), len(e.Pass))])
	return row, err
}

func noteOf(e *bpf.Event) string {
	var notes []string
	if e.Flags&uint8(bpf.MargayEventFlagsEVENT_REVOKED) != 0 {
		notes = append(notes, "revoked")
	}
	if e.Flags&uint8(bpf.MargayEventFlagsEVENT_REJUDGED) != 0 {
		notes = append(notes, "judged again")
	}
	if e.Flags&uint8(bpf.MargayEventFlagsEVENT_TRANSLATED) != 0 {
		notes = append(notes, "after translation")
	}
	if bpf.DropReason(e.Reason) != bpf.MargayDropReasonDROP_NONE && bpf.DropReason(e.Reason) != bpf.MargayDropReasonDROP_POLICY {
		notes = append(notes, bpf.Text(bpf.DropReason(e.Reason)))
	}
	return strings.Join(notes, ", ")
}

// ruleName is the API rule of a number in rule_stats.
func (n *namer) ruleName(id uint32) (string, error) {
	if id == 0 {
		return "no rule", nil
	}
	name, ok, err := n.maps.RuleName(id)
	if err != nil || ok {
		return name, err
	}
	return fmt.Sprintf("rule %d, gone since", id), nil
}

// trace names entries of the match table the event was judged by. A table that is gone since leaves only their numbers.
func (n *namer) trace(e *bpf.Event, entries []uint16) ([]string, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	word := bpfmaps.PolicyWord(e.Slot, e.Generation)
	rules, ok := n.rules[word]
	if !ok {
		var err error
		if rules, err = n.maps.ReadRules(e.Slot); err != nil {
			return nil, err
		}
		n.rules[word] = rules
	}
	var list []string
	for _, i := range entries {
		if int(i) >= len(rules) {
			list = append(list, fmt.Sprintf("entry %d, gone since", i))
			continue
		}
		name, err := n.ruleName(rules[i].Id)
		if err != nil {
			return nil, err
		}
		list = append(list, name)
	}
	return list, nil
}

func (r *eventRow) text() string {
	line := fmt.Sprintf("%s  %-5s %-7s of %s  %s -> %s %s  by %s", r.Time.Format("15:04:05.000"), r.Verdict, r.Direction, r.Endpoint,
		r.Src, r.Dst, r.Protocol, r.Rule)
	if len(r.Logged) > 0 {
		line += "  logged by " + strings.Join(r.Logged, ", ")
	}
	if len(r.Passed) > 0 {
		line += "  passed by " + strings.Join(r.Passed, ", ")
	}
	if r.Note != "" {
		line += "  (" + r.Note + ")"
	}
	if r.Suppressed > 0 {
		line += fmt.Sprintf("  [%d not shown before it]", r.Suppressed)
	}
	return line
}

// timeOf is the time of day of a moment the kernel's monotonic clock gave.
func timeOf(monotonic uint64) time.Time {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return time.Now()
	}
	return time.Now().Add(-time.Duration(now.Nano() - int64(monotonic)))
}
