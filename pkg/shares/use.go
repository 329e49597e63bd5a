package shares

import "log/slog"

// use is the use of the table as last read. All endpoints and the node share the table. When it is full, the kernel drops packets of new
// connections, those of every endpoint, whatever policy says; existing connections go on.
type use struct {
	entries, limit uint32 // limit 0: it has none, or could not be read
	full           bool
}

// Percentages of the table in use: from tooMuch on it is logged as full, below roomAgain as having room again. The gap avoids a log
// line for each entry that expires in a full table.
const (
	tooMuch   = 99
	roomAgain = 90
)

// note keeps the numbers, and logs once when the table is full and once when it has room again.
func (u *use) note(entries, limit uint32, log *slog.Logger) {
	u.entries, u.limit = entries, limit
	if limit == 0 {
		return
	}
	switch {
	case !u.full && uint64(entries)*100 >= uint64(limit)*tooMuch:
		u.full = true
		log.Error("the kernel's table of connections is full: it drops new connections of all pods and of the node, whatever policy says; "+
			"end those that are not needed, or raise the sysctl net.netfilter.nf_conntrack_max", "connections", entries, "most", limit)
	case u.full && uint64(entries)*100 < uint64(limit)*roomAgain:
		u.full = false
		log.Info("the kernel's table of connections has room again", "connections", entries, "most", limit)
	}
}
