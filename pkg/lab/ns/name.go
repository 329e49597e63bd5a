package ns

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Prefix begins the name of every namespace Margay makes.
const Prefix = "mgy-"

var serial atomic.Uint32

// NewID returns a short identity that no other call, and no other process alive, has: the process id in decimal, a
// letter, and a serial number in base 36.
func NewID() string {
	return strconv.Itoa(os.Getpid()) + "x" + strconv.FormatUint(uint64(serial.Add(1)), 36)
}

// OwnPrefix begins the name of every namespace of this process that was named by NewID.
func OwnPrefix() string { return Prefix + strconv.Itoa(os.Getpid()) + "x" }

// creator is the process id in a name made of Prefix and NewID; false if the name has another form.
func creator(name string) (pid int, ok bool) {
	rest, ok := strings.CutPrefix(name, Prefix)
	if !ok {
		return 0, false
	}
	digits, _, ok := strings.Cut(rest, "x")
	if !ok {
		return 0, false
	}
	pid, err := strconv.Atoi(digits)
	return pid, err == nil && pid > 0
}

// Abandoned reports whether the name is one made of Prefix and NewID, with or without more behind it, by a process that is
// gone. Files are named like that too.
func Abandoned(name string) bool {
	pid, ok := creator(name)
	return ok && errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

// RemoveLeftovers removes the namespaces whose name begins with prefix, which itself must begin with Prefix, and whose
// creating process is gone; those of a process that lives, this one included, stay. It returns the names it removed.
func RemoveLeftovers(prefix string) (removed []string, err error) {
	if !strings.HasPrefix(prefix, Prefix) {
		return nil, fmt.Errorf("remove leftover network namespaces: prefix %q does not begin with %q", prefix, Prefix)
	}
	names, err := List()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, prefix) || !Abandoned(name) {
			continue
		}
		if e := Remove(name); e != nil {
			err = errors.Join(err, e)
			continue
		}
		removed = append(removed, name)
	}
	return removed, err
}
