package iptables

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
)

// A transaction of which the kernel has dropped messages is one that may have written anywhere: a Stamp says so. Messages that came before it
// count in the same Stamp, and those after it as ever.
func TestLostMessagesOfNftablesShowInAStamp(t *testing.T) {
	testutil.Privileged(t)
	testutil.RequireCommand(t, "nft")
	testutil.NetNS(t).Enter(t)
	write := func(lines ...string) {
		t.Helper()
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	var seen transactions
	stamp := func(table string) Stamp {
		t.Helper()
		s, err := seen.stamp(V4, table)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	write("add table ip filter", "add table ip mangle")
	mangle, filter := stamp("mangle"), stamp("filter")
	if err := unix.SetsockoptInt(int(seen.socket.Fd()), unix.SOL_SOCKET, unix.SO_RCVBUF, 16<<10); err != nil {
		t.Fatal(err)
	}
	write("add chain ip mangle a")
	var many []string
	for i := range 2000 {
		many = append(many, fmt.Sprint("add chain ip filter many-", i))
	}
	write(many...)
	lost := stamp("mangle")
	if lost.Lost != mangle.Lost+1 || lost.Writes != mangle.Writes+1 || lost.Generation != mangle.Generation+2 {
		t.Errorf("the stamp was %+v and is %+v: want one write, one loss and two transactions", mangle, lost)
	}
	w := watch{last: filter}
	if w.others(stamp("filter")); !w.unverified {
		t.Error("a table that the lost transaction has written is not looked at")
	}
	write("add chain ip mangle b")
	if now := stamp("mangle"); now.Lost != lost.Lost || now.Writes != lost.Writes+1 {
		t.Errorf("after a further write the stamp was %+v and is %+v", lost, now)
	}
}
