//go:build linux

package traffic

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"github.com/margay-project/margay/pkg/lab"
	"golang.org/x/sys/unix"
)

// Ports the server pods serve; policy allows them by its last rule.
const (
	servedPort = 7000
	clientPort = 6000 // of the long-lived sockets
	deniedPort = 7999 // served too, and not allowed
)

const (
	size  = 64 // bytes of a datagram, request and answer
	burst = 16 // datagrams that go one way before the other side answers
)

// pair is a client pod and a server pod with everything open between them.
type pair struct {
	client, server   *lab.Pod
	to               *sockaddr
	udp, tcp         [2]int // client's and server's end of the established flows
	listen           int
	toServer, toHere []byte
}

// connectPair opens a UDP flow and a TCP connection and uses both once in each direction.
func connectPair(client, server *lab.Pod) (*pair, error) {
	from := netip.AddrPortFrom(client.Addr4(), clientPort)
	to := netip.AddrPortFrom(server.Addr4(), servedPort)
	p := &pair{client: client, server: server, to: newSockaddr(to), toServer: make([]byte, size), toHere: make([]byte, size)}
	err := server.Do(func() (err error) {
		if p.udp[1], err = open(unix.SOCK_DGRAM, to); err != nil {
			return err
		}
		if err := connect(p.udp[1], newSockaddr(from)); err != nil {
			return err
		}
		if p.listen, err = open(unix.SOCK_STREAM, to); err != nil {
			return err
		}
		return unix.Listen(p.listen, 128)
	})
	if err != nil {
		return nil, fmt.Errorf("open sockets in %s: %w", server.Name(), err)
	}
	err = client.Do(func() (err error) {
		if p.udp[0], err = open(unix.SOCK_DGRAM, from); err != nil {
			return err
		}
		if err := connect(p.udp[0], p.to); err != nil {
			return err
		}
		if p.tcp[0], err = open(unix.SOCK_STREAM, from); err != nil {
			return err
		}
		return connect(p.tcp[0], p.to)
	})
	if err != nil {
		return nil, fmt.Errorf("connect %s to %s: %w", client.Name(), to, err)
	}
	if p.tcp[1], err = p.accept(); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *pair) accept() (int, error) {
	fd, err := accept(p.listen)
	if err != nil {
		return 0, err
	}
	return fd, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
}

func (p *pair) close() error {
	var errs []error
	for _, fd := range []int{p.udp[0], p.udp[1], p.tcp[0], p.tcp[1], p.listen} {
		if fd > 0 {
			errs = append(errs, closeFD(fd))
		}
	}
	return errors.Join(errs...)
}

// A workload is what the two ends of a pair do for a number of operations.
type workload struct {
	name           string
	client, server func(p *pair, ops int) error
}

// An operation is one datagram, in either direction.
var udpPackets = workload{
	name: "established UDP packet",
	client: func(p *pair, ops int) error {
		return repeat(ops/(2*burst), func() error {
			if err := repeat(burst, func() error { return write(p.udp[0], p.toServer) }); err != nil {
				return err
			}
			return repeat(burst, func() error { return read(p.udp[0], p.toServer) })
		})
	},
	server: func(p *pair, ops int) error {
		return repeat(ops/(2*burst), func() error {
			if err := repeat(burst, func() error { return read(p.udp[1], p.toHere) }); err != nil {
				return err
			}
			return repeat(burst, func() error { return write(p.udp[1], p.toHere) })
		})
	},
}

// An operation is a request and its answer on one connection.
var tcpRequests = workload{
	name:   "TCP request-response",
	client: func(p *pair, ops int) error { return repeat(ops, func() error { return ask(p.tcp[0], p.toServer) }) },
	server: func(p *pair, ops int) error { return repeat(ops, func() error { return answer(p.tcp[1], p.toHere) }) },
}

// An operation is a connection with one request and its answer, closed by the client first.
var tcpConnections = workload{
	name: "TCP connect-request-close",
	client: func(p *pair, ops int) error {
		return repeat(ops, func() error {
			fd, err := socket(unix.SOCK_STREAM)
			if err != nil {
				return err
			}
			if err := connect(fd, p.to); err != nil {
				return errors.Join(err, closeFD(fd))
			}
			return errors.Join(ask(fd, p.toServer), closeFD(fd))
		})
	},
	server: func(p *pair, ops int) error {
		return repeat(ops, func() error {
			fd, err := accept(p.listen)
			if err != nil {
				return err
			}
			err = answer(fd, p.toHere)
			if err == nil && read(fd, p.toHere[:1]) == nil { // the client's end
				err = errors.New("more than one request")
			}
			return errors.Join(err, closeFD(fd))
		})
	},
}

func repeat(n int, do func() error) error {
	for range n {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

func ask(fd int, b []byte) error {
	if err := write(fd, b); err != nil {
		return err
	}
	return read(fd, b)
}

func answer(fd int, b []byte) error {
	if err := read(fd, b); err != nil {
		return err
	}
	return write(fd, b)
}

// Driver is the two threads that are measured.
type Driver struct {
	client, server *thread
}

// NewDriver starts the threads; Close ends them.
func NewDriver(core int) (*Driver, error) {
	// A thread that waits in a system call the scheduler does not know of keeps its processor. The runtime lowers their
	// number when it finds a thread with an affinity of one core; then one end holds the only processor while it waits
	// for the other, for ever. A number that is set by hand is not lowered.
	runtime.GOMAXPROCS(max(4, runtime.NumCPU()))
	client, err := newThread(core)
	if err != nil {
		return nil, err
	}
	server, err := newThread(core)
	if err != nil {
		close(client.jobs)
		return nil, err
	}
	return &Driver{client, server}, nil
}

// RealTime says whether the threads have the core to themselves while they run.
func (d *Driver) RealTime() bool { return d.client.realTime && d.server.realTime }

// Close ends the threads.
func (d *Driver) Close() {
	close(d.client.jobs)
	close(d.server.jobs)
}

// run does the workload and returns the CPU time of both ends.
func (d *Driver) run(w workload, p *pair, ops int) (time.Duration, error) {
	server := d.server.start(func() error { return w.server(p, ops) })
	var cpu time.Duration
	var failed error
	d.client.jobs <- func() {
		// New sockets belong to the pod; being there and leaving is not measured.
		failed = p.client.Do(func() error {
			before := threadCPU()
			err := w.client(p, ops)
			cpu = threadCPU() - before
			return err
		})
	}
	s := <-server
	d.client.jobs <- func() {} // until the client is done too
	if err := errors.Join(failed, s.err); err != nil {
		return 0, fmt.Errorf("%s from %s: %w", w.name, p.client.Name(), err)
	}
	return cpu + s.cpu, nil
}
