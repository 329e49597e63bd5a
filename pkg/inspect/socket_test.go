package inspect_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/margay-project/margay/pkg/inspect"
)

// leave makes the socket of an owner that is gone.
func leave(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// crowd makes a socket whose owner accepts nothing, and fills its queue of connections.
func crowd(t *testing.T, path string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for {
		conn, err := net.Dial("unix", path)
		if err != nil {
			return
		}
		t.Cleanup(func() { conn.Close() })
	}
}

func TestOnlyASocketThatNobodyListensOnIsRemoved(t *testing.T) {
	for name, c := range map[string]struct {
		make    func(t *testing.T, path string)
		removed bool
		want    string // of the error
	}{
		"nothing": {make: func(*testing.T, string) {}},
		"left":    {make: leave, removed: true},
		"stopped": {make: crowd, want: "may be the socket of an agent that does not answer (connect: resource temporarily unavailable), and is left alone"},
		"file": {make: func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, want: "is no socket"},
		"link": {make: func(t *testing.T, path string) {
			leave(t, path+"-elsewhere")
			if err := os.Symlink(path+"-elsewhere", path); err != nil {
				t.Fatal(err)
			}
		}, want: "is no socket"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			c.make(t, path)
			removed, err := inspect.RemoveLeftSocket(path)
			if removed != c.removed || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("removed %v, %v; want %v and an error with %q", removed, err, c.removed, c.want)
			}
			if _, err := os.Lstat(path); (err == nil) != (c.want != "") {
				t.Errorf("the file afterwards: %v", err)
			}
		})
	}
}
