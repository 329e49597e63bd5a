package cli

import (
	"context"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/dataplane/iptables"
	"github.com/margay-project/margay/pkg/node"
)

// chainDrops returns the counts of packets that the chains of the iptables dataplane have dropped, of all endpoints together.
func chainDrops(ctx context.Context) ([]dropRow, error) {
	ctx, cancel := context.WithTimeout(ctx, conntrackPatience)
	defer cancel()
	tools, err := node.IPTablesTools(ctx)
	if err != nil {
		return nil, err
	}
	list, err := iptables.ReadDrops(ctx, tools)
	rows := []dropRow{}
	for _, d := range list {
		rows = append(rows, dropRow{Direction: d.Direction.String(), Reason: bpf.Label(d.Reason), Text: bpf.Text(d.Reason), Packets: d.Packets, Bytes: d.Bytes})
	}
	sortDrops(rows)
	return rows, err
}
