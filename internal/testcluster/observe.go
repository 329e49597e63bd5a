package testcluster

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/lab"
)

// Capture records the frames that pass a pod's eth0.
func (c *Cluster) Capture(p *lab.Pod) *traffic.Capture {
	c.T.Helper()
	seen, err := traffic.OpenCapture(p.Host, "eth0")
	if err != nil {
		c.T.Fatal(err)
	}
	return seen
}

// Maps opens what the agent has pinned, for reading beside it. It is closed when the test ends.
func (p *Process) Maps() *bpfmaps.Maps {
	p.T.Helper()
	NeedsBPF(p.T, "the test reads BPF maps")
	m, err := bpfmaps.OpenPinned(bpfmaps.Options{BPFFS: p.BPFFS})
	if err != nil {
		p.T.Fatal(err)
	}
	p.T.Cleanup(func() {
		if err := m.Close(); err != nil {
			p.T.Error(err)
		}
	})
	return m
}

// Drops are the packets of a pod that were dropped so far, in either direction, by reason as
// `margay show drops` and metrics call it. With iptables they are those of all pods of the node.
func (p *Process) Drops(of *lab.Pod) map[string]uint64 {
	p.T.Helper()
	if IPTables() {
		return p.shownDrops()
	}
	m, err := bpfmaps.OpenPinned(bpfmaps.Options{BPFFS: p.BPFFS})
	if err != nil {
		p.T.Fatal(err)
	}
	defer m.Close()
	counts, err := m.Drops.All()
	if err != nil {
		p.T.Fatal(err)
	}
	drops := map[string]uint64{}
	for key, n := range counts {
		if int(key.Ifindex) == of.IfIndex() {
			drops[bpf.Label(bpf.DropReason(key.Reason))] += n.Packets
		}
	}
	return drops
}

func (p *Process) shownDrops() map[string]uint64 {
	p.T.Helper()
	var rows []struct {
		Reason  string
		Packets uint64
	}
	out, err := p.Node.Run(p.T.Context(), "", Build(p.T), "show", "drops", "-o", "json", "--socket", p.Socket, "--bpffs", p.BPFFS)
	if err == nil {
		err = json.Unmarshal([]byte(out), &rows)
	}
	if err != nil {
		p.T.Fatalf("margay show drops: %v\n%s", err, out)
	}
	drops := map[string]uint64{}
	for _, row := range rows {
		drops[row.Reason] += row.Packets
	}
	return drops
}

// Dropped demands that at least so many packets of a pod were counted as dropped for the reason. With iptables drops are not
// counted, and nothing is demanded.
func (p *Process) Dropped(of *lab.Pod, least uint64, reason string) {
	p.T.Helper()
	if IPTables() {
		return
	}
	if drops := p.Drops(of); drops[reason] < least {
		p.T.Errorf("drops of %s: %v, want %d as %s", of.Name(), drops, least, reason)
	}
}

// Warnings are the lines of level WARN and above after the first so many bytes of the agent's log, and the log's length.
func (p *Process) Warnings(t *testing.T, after int) (lines []string, length int) {
	t.Helper()
	text, err := os.ReadFile(p.Log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text[after:])) {
		if strings.Contains(line, `"level":"WARN"`) || strings.Contains(line, `"level":"ERROR"`) {
			lines = append(lines, line)
		}
	}
	return lines, len(text)
}
