package kube

import (
	"context"
	"net"
	"time"
)

// secondAttempt is how long a connection may take before another one is tried beside it. The kernel repeats a first
// packet that got lost after one second only; when a network comes back, policy is to be up to date by then.
const secondAttempt = 400 * time.Millisecond

// dialer makes a connection, as net.Dialer.DialContext does.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// twice makes each connection in two attempts, the second a while after the first, and takes the one that is there
// first. The first error counts if both fail.
func (dial dialer) twice(ctx context.Context, network, address string) (net.Conn, error) {
	type outcome struct {
		conn net.Conn
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	outcomes := make(chan outcome, 2)
	attempt := func() {
		conn, err := dial(ctx, network, address)
		outcomes <- outcome{conn, err}
	}
	go attempt()
	again := time.NewTimer(secondAttempt)
	defer again.Stop()
	running := 1
	var first error
	for {
		select {
		case <-again.C:
			running++
			go attempt()
			continue
		case o := <-outcomes:
			running--
			if o.err != nil && first == nil {
				first = o.err
			}
			if o.err != nil && running > 0 {
				continue // the other may succeed
			}
			cancel()
			if running > 0 {
				go func() { // the one that is not needed
					if late := <-outcomes; late.conn != nil {
						late.conn.Close()
					}
				}()
			}
			if o.err != nil {
				return nil, first
			}
			return o.conn, nil
		}
	}
}
