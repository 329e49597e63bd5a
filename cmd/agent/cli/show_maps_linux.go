package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/node"
)

// openMaps opens the pinned maps to look at; they are there as long as anything is enforced, agent or not.
func (f *instanceFlags) openMaps(ctx context.Context) (*bpfmaps.Maps, error) {
	m, err := bpfmaps.OpenPinned(bpfmaps.Options{BPFFS: f.bpffs, Instance: f.instance})
	switch {
	case errors.Is(err, os.ErrNotExist):
		if where := f.elsewhere(ctx); where != "" {
			return nil, errors.New(where)
		}
		if _, err := os.Stat(f.bpffs); err == nil && os.Geteuid() != 0 {
			return nil, errors.New("only root may look for what iptables enforces, and nothing else is there")
		}
		return nil, fmt.Errorf("no maps below %s: nothing is enforced there; start margay run, or say which with --instance or --bpffs",
			bpfmaps.InstanceDir(f.bpffs, f.instance))
	case errors.Is(err, os.ErrPermission):
		return nil, f.mapsForRoot()
	}
	return m, err
}

func (f *instanceFlags) mapsForRoot() error {
	return fmt.Errorf("maps below %s: only root may read them: %w", bpfmaps.InstanceDir(f.bpffs, f.instance), os.ErrPermission)
}

// names are the agent's names of things, or those that it wrote into the maps.
type names struct {
	own     bool // interface numbers of the maps are those of this network namespace
	byIndex map[uint32]string
	byAddr  map[netip.Addr]string
	ifaces  map[uint32]string
}

func (f *instanceFlags) names(ctx context.Context, m *bpfmaps.Maps) names {
	n := names{byIndex: map[uint32]string{}, byAddr: map[netip.Addr]string{}, ifaces: map[uint32]string{}}
	rows := f.endpointRows(ctx, m)
	for i := range rows {
		e := &rows[i]
		n.ifaces[e.Ifindex] = e.Interface
		if name := endpointName(e); name != "" {
			n.byIndex[e.Ifindex] = name
		}
		for _, a := range e.Addrs {
			n.byAddr[a] = endpointName(e)
		}
	}
	return n
}

// behind returns the name of the pod behind an interface; empty: it is not known.
func (n names) behind(iface string) string {
	for ifindex, name := range n.ifaces {
		if name == iface && iface != "" {
			return n.byIndex[ifindex]
		}
	}
	return ""
}

func (n names) iface(ifindex uint32) string {
	if name, ok := n.ifaces[ifindex]; ok {
		return name
	}
	if !n.own {
		return ""
	}
	return node.InterfaceNamed(int(ifindex))
}

// dropRow is the packets of one endpoint dropped for one reason.
type dropRow struct {
	Endpoint  string `json:"endpoint,omitempty"` // empty: not known
	Interface string `json:"interface,omitempty"`
	Ifindex   uint32 `json:"ifindex"`
	Direction string `json:"direction"`
	Reason    string `json:"reason"` // as in metrics
	Text      string `json:"text"`
	Packets   uint64 `json:"packets"`
	Bytes     uint64 `json:"bytes"`
}

func showDropsCommand() *cobra.Command {
	var o showOptions
	cmd := &cobra.Command{
		Use: "drops", Aliases: []string{"drop"}, Short: "Dropped packets by endpoint and reason, from the kernel", Args: noArguments("pod"),
		Long: "Dropped packets by endpoint and reason.\n\nWith iptables, chains count for all endpoints together, and since each was last written.",
	}
	o.register(cmd.Flags(), "namespace", "pod", "sort-by")
	return showList(&o, cmd, listing[dropRow]{
		read: func(cmd *cobra.Command, _ []string) ([]dropRow, error) {
			if o.byIPTables() {
				return chainDrops(cmd.Context())
			}
			m, err := o.openMaps(cmd.Context())
			if err != nil {
				return nil, err
			}
			defer m.Close()
			counts, err := m.Drops.All()
			if err != nil {
				return nil, err
			}
			n := o.names(cmd.Context(), m)
			n.own = node.OwnNumbers(m.LinkDir())
			return dropRows(counts, n), nil
		},
		keep:  func(r *dropRow) bool { return o.selectsName(r.Endpoint) },
		table: dropTable,
	})
}

func dropRows(counts map[bpf.DropKey]bpf.Counter, n names) []dropRow {
	rows := []dropRow{}
	for key, c := range counts {
		row := dropRow{
			Endpoint: n.byIndex[key.Ifindex], Interface: n.iface(key.Ifindex), Ifindex: key.Ifindex, Direction: "egress",
			Reason: bpf.Label(bpf.DropReason(key.Reason)), Text: bpf.Text(bpf.DropReason(key.Reason)),
			Packets: c.Packets, Bytes: c.Bytes,
		}
		if key.ToPod != 0 {
			row.Direction = "ingress"
		}
		rows = append(rows, row)
	}
	sortDrops(rows)
	return rows
}

func sortDrops(rows []dropRow) {
	slices.SortFunc(rows, func(a, b dropRow) int {
		return cmp.Or(cmp.Compare(a.Endpoint, b.Endpoint), cmp.Compare(a.Ifindex, b.Ifindex),
			cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.Reason, b.Reason))
	})
}

func dropTable(rows []dropRow) *table {
	t := &table{
		header: []string{"ENDPOINT", "INTERFACE", "DIRECTION", "PACKETS", "BYTES", "REASON", "MEANING"}, wide: []string{"IFINDEX"},
		none: "nothing has been dropped",
	}
	for _, r := range rows {
		iface := r.Interface
		if iface == "" && r.Ifindex != 0 {
			iface = "ifindex " + strconv.Itoa(int(r.Ifindex))
		}
		t.add(r.Endpoint, iface, r.Direction, strconv.FormatUint(r.Packets, 10), strconv.FormatUint(r.Bytes, 10), r.Reason, r.Text,
			strconv.Itoa(int(r.Ifindex)))
	}
	return t
}
