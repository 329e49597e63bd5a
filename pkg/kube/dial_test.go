package kube

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// attempts is a dialer whose attempts take so long and end so; a nil error makes a connection.
type attempts struct {
	mu     sync.Mutex // guards what follows
	takes  []time.Duration
	errs   []error
	made   []*conn
	begun  int
	active int
}

type conn struct {
	net.Conn
	number int
	closed bool
}

func (c *conn) Close() error {
	c.closed = true
	return nil
}

func (a *attempts) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	a.mu.Lock()
	i := a.begun
	a.begun++
	a.active++
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.active--
		a.mu.Unlock()
	}()
	select {
	case <-ctx.Done():
		if a.errs[i] != nil {
			return nil, ctx.Err()
		}
	case <-time.After(a.takes[i]):
	}
	if a.errs[i] != nil {
		return nil, a.errs[i]
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	c := &conn{number: i}
	a.made = append(a.made, c)
	return c, nil
}

func TestAConnectionThatTakesLongIsTriedASecondTime(t *testing.T) {
	lost, refused := errors.New("lost"), errors.New("refused")
	for _, tc := range []struct {
		name  string
		takes []time.Duration
		errs  []error
		want  int // number of the attempt that is taken; -1: none
		err   error
		after time.Duration
		begun int
	}{
		{"at once", []time.Duration{0}, []error{nil}, 0, nil, 0, 1},
		{"refused at once", []time.Duration{0}, []error{refused}, -1, refused, 0, 1},
		{"the first is lost", []time.Duration{time.Hour, 0}, []error{lost, nil}, 1, nil, secondAttempt, 2},
		{"the first is slow", []time.Duration{500 * time.Millisecond, time.Hour}, []error{nil, nil}, 0, nil, 500 * time.Millisecond, 2},
		{"the first fails late", []time.Duration{500 * time.Millisecond, 500 * time.Millisecond}, []error{refused, nil}, 1, nil,
			900 * time.Millisecond, 2},
		{"both fail", []time.Duration{500 * time.Millisecond, 500 * time.Millisecond}, []error{refused, lost}, -1, refused,
			900 * time.Millisecond, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &attempts{takes: tc.takes, errs: tc.errs}
				began := time.Now()
				got, err := dialer(a.dial).twice(t.Context(), "tcp", "server:443")
				if took := time.Since(began); took != tc.after || !errors.Is(err, tc.err) || a.begun != tc.begun {
					t.Errorf("%v after %v in %d attempts, want %v after %v in %d", err, took, a.begun, tc.err, tc.after, tc.begun)
				}
				if c, ok := got.(*conn); ok != (tc.want >= 0) || ok && c.number != tc.want {
					t.Errorf("connection %v, want that of attempt %d", got, tc.want)
				}
				synctest.Wait()
				if a.active != 0 {
					t.Errorf("%d attempts go on", a.active)
				}
				for _, c := range a.made {
					if c.closed == (c.number == tc.want) {
						t.Errorf("connection of attempt %d: closed %t", c.number, c.closed)
					}
				}
			})
		})
	}
}
