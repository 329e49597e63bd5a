package cli

import (
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/margay-project/margay/pkg/diff"
)

// fewNames bounds the pods, and the peers, that a change names, unless -o wide asks for all.
const fewNames = 5

func writeDiff(w io.Writer, r *diff.Report, wide bool) error {
	most := fewNames
	if wide {
		most = 0
	}
	for i := range r.Changes {
		if err := writeChange(w, &r.Changes[i], most); err != nil {
			return err
		}
	}
	if r.Omitted > 0 {
		fmt.Fprintf(w, "%s more; --limit 0 prints all\n", count(r.Omitted, "change"))
	}
	for _, n := range r.NotCompared {
		fmt.Fprintf(w, "not compared: %s of %s: %s\n", n.Direction, n.Pod, readable(n.Reason))
	}
	result := screenOf(w).paint("no verdict changes")
	switch {
	case len(r.Changes) > 0:
		result = screenOf(w).alarm(fmt.Sprintf("verdicts change for %s", count(r.Changed, "pod")))
	case !r.Same:
		result = screenOf(w).alarm("not everything was compared")
	}
	_, err := fmt.Fprintf(w, "diff: %s; %s compared with %s\n", result, count(r.Pods, "pod"), count(r.Packets, "packet"))
	return err
}

func writeChange(w io.Writer, c *diff.Change, most int) error {
	s := screenOf(w)
	var peers []string
	for _, p := range c.Peers {
		peers = append(peers, peerText(p))
	}
	family, side := "", "from"
	if c.Family != 0 {
		family = fmt.Sprintf(" over IPv%d", c.Family)
	}
	if c.Direction == "egress" {
		side = "to"
	}
	_, err := fmt.Fprintf(w, "%s -> %s: %s of %s%s\n  %-8s %s\n  ports    %s\n  was      %s\n  becomes  %s\n",
		s.paint(c.Was.Verdict), s.paint(c.Becomes.Verdict), c.Direction, few(c.Pods, "pod", most), family, side, few(peers, "peer", most),
		few(c.Ports, "range", most*4), decisionText(c.Was), decisionText(c.Becomes))
	return err
}

// decisionText is what margay explain prints of one side.
func decisionText(d diff.Decision) string {
	if strings.HasPrefix(d.Reason, "by ") {
		return d.Verdict + " " + readable(d.Reason)
	}
	return d.Verdict + ": " + readable(d.Reason)
}

// few names the first of a list; most 0: all.
func few(list []string, what string, most int) string {
	if most == 0 || len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %s more", strings.Join(list[:most], ", "), count(len(list)-most, what))
}

func peerText(p diff.Peer) string {
	if !p.Other {
		return p.Name
	}
	of := "other addresses"
	if p.Inner != (netip.Prefix{}) {
		of = "addresses of " + p.Inner.String()
	}
	return fmt.Sprintf("%s, such as %s", of, p.Some[0])
}
