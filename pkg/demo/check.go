package demo

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/margay-project/margay/pkg/lab/echo"
)

// check is one attempt to connect, its expected result and its result.
type check struct {
	src, dst string
	addr     netip.AddrPort
	port     port
	want     bool
	got      echo.Attempt
}

func (c *check) allowed() bool { return c.got.Outcome == echo.Connected }
func (c *check) wrong() bool   { return c.allowed() != c.want }

// matrix are all checks: every pair, port and family.
func (s *scene) matrix() []*check {
	var list []*check
	for _, src := range s.order {
		for _, p := range pods {
			dst := p.namespace + "/" + p.name
			if src == dst {
				continue
			}
			for _, port := range ports {
				want := egressAllowed(src, dst, port) && ingressAllowed(src, dst, port)
				for _, v6 := range []bool{false, true} {
					list = append(list, &check{src: src, dst: dst, port: port, want: want,
						addr: netip.AddrPortFrom(s.hosts[dst].Addr(v6), port.number)})
				}
			}
		}
	}
	return list
}

// serviceChecks go through Service addresses: policy judges the backend.
func serviceChecks() []*check {
	tcp, udp := port{8080, "tcp"}, port{53, "udp"}
	return []*check{
		{src: "shop/web", dst: "service api", addr: apiService, port: tcp, want: true},
		{src: "shop/db", dst: "service api", addr: apiService, port: tcp, want: false},
		{src: "dev/box", dst: "service api", addr: apiService, port: tcp, want: false},
		{src: "shop/db", dst: "service dns", addr: dnsService, port: udp, want: true},
		{src: "dev/box", dst: "service dns", addr: dnsService, port: udp, want: true},
	}
}

// try runs the checks, many at a time: a denied one takes as long as its timeout.
func (s *scene) try(list []*check) {
	const atOnce, patience = 64, 400 * time.Millisecond
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for _, c := range list {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			from := s.hosts[c.src]
			if c.port.protocol == "udp" {
				c.got = echo.ExchangeUDP(from, c.addr, []byte("demo"), patience)
			} else {
				c.got = echo.DialTCP(from, c.addr, patience)
			}
		})
	}
	all.Wait()
}

// printMatrix shows each pair as four marks, one a port: + reached, - denied, ! not as expected.
func (s *scene) printMatrix(w io.Writer, list []*check) {
	var names []string
	for _, p := range ports {
		names = append(names, p.String())
	}
	fmt.Fprintf(w, "%-11s", "from \\ to")
	for _, p := range pods {
		fmt.Fprintf(w, " %-10s", p.namespace+"/"+p.name)
	}
	fmt.Fprintln(w)
	for _, src := range s.order {
		fmt.Fprintf(w, "%-11s", src)
		for _, p := range pods {
			fmt.Fprintf(w, " %-10s", cell(list, src, p.namespace+"/"+p.name))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "Each cell: ports %s over IPv4 and IPv6; + reached, - denied, ! not as expected.\n", strings.Join(names, ", "))
}

func cell(list []*check, src, dst string) string {
	if src == dst {
		return "."
	}
	marks := []byte("    ")
	for _, c := range list {
		if c.src != src || c.dst != dst {
			continue
		}
		for i, p := range ports {
			switch {
			case p != c.port || marks[i] == '!':
			case c.wrong():
				marks[i] = '!'
			case c.allowed():
				marks[i] = '+'
			default:
				marks[i] = '-'
			}
		}
	}
	return string(marks)
}

// printWrong names every check that went wrong.
func printWrong(w io.Writer, list []*check) (wrong int) {
	for _, c := range list {
		if !c.wrong() {
			continue
		}
		wrong++
		fmt.Fprintf(w, "WRONG: %s -> %s %s %s: want %s, was %s (%v)\n", c.src, c.dst, c.addr, c.port.protocol, word(c.want), c.got.Outcome, c.got.Err)
	}
	return wrong
}

func word(allow bool) string {
	if allow {
		return "allowed"
	}
	return "denied"
}
