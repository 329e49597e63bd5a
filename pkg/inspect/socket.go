package inspect

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// ErrNotLeft says that a file is not the socket of an agent that is gone.
var ErrNotLeft = errors.New("left alone")

// RemoveLeftSocket removes the socket that an agent which is gone has left at path, and says whether there was one. A file that is no
// socket, and one that a process may still listen on, are left alone: then there is an error. Only a refused connection proves that no process
// listens: a stopped agent whose queue of connections is full does not answer either.
func RemoveLeftSocket(path string) (removed bool, err error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at the socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return false, fmt.Errorf("%s is no socket, and is %w: name another file by --socket, or remove it", path, ErrNotLeft)
	}
	conn, err := net.Dial("unix", path)
	switch {
	case err == nil:
		return false, errors.Join(fmt.Errorf("%s is another agent's, and is %w: use --instance or --socket", path, ErrNotLeft), conn.Close())
	case errors.Is(err, fs.ErrNotExist): // its owner has just removed it
		return false, nil
	case !errors.Is(err, syscall.ECONNREFUSED):
		return false, fmt.Errorf("%s may be the socket of an agent that does not answer (%w), and is %w: stop that agent, or use --instance or --socket",
			path, errors.Unwrap(err), ErrNotLeft)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("remove the socket of an agent that is gone: %w", err)
	}
	return true, nil
}
