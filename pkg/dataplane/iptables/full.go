package iptables

import "log/slog"

// flowTable is how full the kernel's table of connections was when it was last looked at. All pods and the node share it. Where it is
// full the kernel drops packets of new connections before policy is asked, those of all pods alike; connections that are in it live on.
type flowTable struct {
	entries, most uint32 // most 0: it was not looked at yet
	full          bool
}

// The parts of the table, in hundredths, from which on it is said to be full, and below which no longer. Entries that expire leave
// room for a moment in a table that new connections fill.
const (
	tooMuch = 99
	enough  = 90
)

// look reads the numbers, and logs once that the table is full, and that it is not any more. Where they cannot be read, nothing is
// known, which the metrics show.
func (t *flowTable) look(flows Flows, log *slog.Logger) {
	entries, most, err := flows.Usage()
	if err != nil {
		*t = flowTable{full: t.full}
		return
	}
	t.entries, t.most = entries, most
	switch {
	case !t.full && most > 0 && uint64(entries)*100 >= uint64(most)*tooMuch:
		t.full = true
		log.Error("the kernel's table of connections is full: it drops new connections of all pods and of the node, whatever policy says; "+
			"end those that are not needed, or raise the sysctl net.netfilter.nf_conntrack_max", "connections", entries, "most", most)
	case t.full && uint64(entries)*100 < uint64(most)*enough:
		t.full = false
		log.Info("the kernel's table of connections has room again", "connections", entries, "most", most)
	}
}
