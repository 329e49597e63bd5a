package cli

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
)

// terminal is a pseudo-terminal of that many columns.
func terminal(t *testing.T, columns uint16) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		testutil.Missing(t, err.Error())
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		testutil.Missing(t, err.Error())
	}
	t.Cleanup(func() { slave.Close() })
	return slave
}

func TestATerminalHasColoursAndAWidth(t *testing.T) {
	for _, c := range []struct {
		flag, noColor, term string
		want                bool
	}{
		{"auto", "", "xterm", true}, {"auto", "1", "xterm", false}, {"auto", "", "dumb", false},
		{"always", "1", "xterm", true}, {"never", "", "xterm", false},
	} {
		t.Setenv("NO_COLOR", c.noColor)
		t.Setenv("TERM", c.term)
		s := newScreen(terminal(t, 77), c.flag)
		if s.color != c.want || !s.terminal || s.width != 77 {
			t.Errorf("--color %s, NO_COLOR=%q, TERM=%s: %+v, want colours %v and 77 columns", c.flag, c.noColor, c.term, s, c.want)
		}
	}
}
