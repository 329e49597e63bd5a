package iptables

import (
	"log/slog"

	"github.com/margay-project/margay/pkg/shares"
)

// flowTable has the use of the kernel's table of connections as last read. All pods and the node share the table. When it is full,
// the kernel drops packets of new connections before policy judges them, those of every pod; existing connections go on.
type flowTable struct {
	entries, most uint32 // most 0: not read yet
	full          bool
	limiter       *shares.Limiter // nil: no endpoint's connections are limited
	ends          ends
}

// Percentages of the table in use: from tooMuch on it is logged as full, below enough as having room again. The gap avoids a log
// line for each entry that expires in a full table.
const (
	tooMuch = 99
	enough  = 90
)

// look reads the numbers, and logs once when the table is full and once when it has room again. If they cannot be read, they are 0
// and the metrics leave them out.
func (t *flowTable) look(flows Flows, log *slog.Logger) {
	entries, most, err := flows.Usage()
	if err != nil {
		t.entries, t.most = 0, 0
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
