package traffic

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// Target is an address to which a Prober connects, and the expected result.
type Target struct {
	Addr    netip.AddrPort
	Allowed bool
	// Timeout of one attempt. The default is 150 ms where denied. Where allowed it is 10 s, and an attempt that the kernel had to
	// send something again for, as it does a second after a lost SYN, counts as a timeout, however long the machine stands still.
	Timeout time.Duration
}

// ProberOptions tune a Prober; zero fields take the defaults.
type ProberOptions struct {
	Interval    time.Duration // from one attempt to the next, per target; default 10 ms
	MaxInFlight int           // attempts at the same time, per target; default 16
}

// ProbeResult is what a Prober has counted for one target.
type ProbeResult struct {
	Target     Target
	Attempts   uint64                  // finished
	Outcomes   map[echo.Outcome]uint64 // how they ended
	Wrong      uint64                  // allowed and not Connected, or denied and established
	FirstWrong echo.Attempt
	Skipped    uint64 // turns left out since MaxInFlight attempts were under way
}

// Prober makes new TCP connections to servers of the lab (echo.ListenTCP) over and over and counts those that end
// otherwise than they ought to. A server's own Accepted count tells about a denied target even what a client that gave
// up early does not. It is safe for concurrent use.
type Prober struct {
	host *lab.Host
	opts ProberOptions
	probe
	running sync.WaitGroup // a pacer per target, and attempts
	strict  []bool         // by target: nothing may be sent again

	mu      sync.Mutex
	results []ProbeResult
}

// StartProber begins to connect to all targets side by side.
func StartProber(h *lab.Host, opts ProberOptions, targets ...Target) (*Prober, error) {
	if len(targets) == 0 {
		return nil, errors.New("start prober: no targets")
	}
	if opts.Interval <= 0 {
		opts.Interval = 10 * time.Millisecond
	}
	if opts.MaxInFlight <= 0 {
		opts.MaxInFlight = 16
	}
	p := &Prober{host: h, opts: opts, probe: newProbe()}
	strict := make([]bool, len(targets))
	for i, t := range targets {
		strict[i] = t.Allowed && t.Timeout <= 0
		if !t.Addr.IsValid() {
			return nil, fmt.Errorf("start prober from %s: target without address", h.Name())
		}
		if t.Timeout <= 0 {
			t.Timeout = 150 * time.Millisecond
			if t.Allowed {
				t.Timeout = 10 * time.Second
			}
		}
		p.results = append(p.results, ProbeResult{Target: t, Outcomes: map[echo.Outcome]uint64{}})
	}
	p.strict = strict
	p.running.Add(len(targets))
	for i := range p.results {
		go p.pace(i, p.results[i].Target)
	}
	go func() {
		p.running.Wait()
		close(p.done)
	}()
	if err := h.Adopt(p); err != nil {
		return nil, err
	}
	return p, nil
}

// pace starts the attempts on target i.
func (p *Prober) pace(i int, t Target) {
	defer p.running.Done()
	tick := time.NewTicker(p.opts.Interval)
	defer tick.Stop()
	places := make(chan struct{}, p.opts.MaxInFlight)
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-tick.C:
		}
		select {
		case places <- struct{}{}:
		default:
			p.mu.Lock()
			p.results[i].Skipped++
			p.mu.Unlock()
			continue
		}
		p.running.Add(1)
		go func() {
			defer p.running.Done()
			p.count(i, echo.DialTCP(p.host, t.Addr, t.Timeout))
			<-places
		}()
	}
}

func (p *Prober) count(i int, a echo.Attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &p.results[i]
	if p.strict[i] && a.Outcome == echo.Connected && a.Retransmits > 0 {
		a.Outcome = echo.Timeout
	}
	r.Attempts++
	r.Outcomes[a.Outcome]++
	wrong := a.Established
	if r.Target.Allowed {
		wrong = a.Outcome != echo.Connected
	}
	if wrong {
		if r.Wrong == 0 {
			r.FirstWrong = a
		}
		r.Wrong++
	}
}

// Results returns the counts so far, in the order of the targets.
func (p *Prober) Results() []ProbeResult {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := slices.Clone(p.results)
	for i, r := range out {
		out[i].Outcomes = make(map[echo.Outcome]uint64, len(r.Outcomes))
		for o, n := range r.Outcomes {
			out[i].Outcomes[o] = n
		}
	}
	return out
}

// Stop waits for the attempts under way and returns the final counts, also when called again.
func (p *Prober) Stop() []ProbeResult {
	p.end()
	p.host.Release(p)
	return p.Results()
}

// Close is Stop, for the host.
func (p *Prober) Close() error {
	p.Stop()
	return nil
}
