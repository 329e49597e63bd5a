package directory

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/margay-project/margay/pkg/validate"
)

// readFile reads a regular file. It may have become something else since it was looked at, and opening a FIFO, or reading
// a device, may last for ever.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(cmp.Or(err, errNotRegular), f.Close())
	}
	var text bytes.Buffer
	text.Grow(int(min(info.Size(), validate.MaxFileSize)) + bytes.MinRead) // else it grows in steps, and leaves as much garbage
	_, err = text.ReadFrom(io.LimitReader(unwaiting{f}, validate.MaxFileSize+1))
	return text.Bytes(), errors.Join(err, f.Close())
}

var errWaits = errors.New("not an ordinary file: reading it waits for somebody to write")

// unwaiting reads a file that was opened with O_NONBLOCK and never waits. Some files of the kernel, such as /proc/kmsg, are regular and have
// no end: their reader waits for more.
type unwaiting struct{ file *os.File }

// Read implements io.Reader.
func (r unwaiting) Read(p []byte) (n int, err error) {
	conn, err := r.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	closed := conn.Read(func(fd uintptr) (done bool) {
		for n, err = syscall.Read(int(fd), p); err == syscall.EINTR; {
			n, err = syscall.Read(int(fd), p)
		}
		return true // also if there is nothing to read
	})
	n = max(n, 0)
	switch {
	case closed != nil:
		return n, closed
	case err == syscall.EAGAIN:
		return n, errWaits
	case err != nil:
		return n, os.NewSyscallError("read", err)
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}
