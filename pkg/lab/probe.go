package lab

import "context"

// probe is the life of the goroutines of a Stream, which run until it is stopped.
type probe struct {
	ctx    context.Context // ends when it is stopped
	cancel context.CancelFunc
	done   chan struct{} // closed by the last goroutine
}

func newProbe() probe {
	ctx, cancel := context.WithCancel(context.Background())
	return probe{ctx, cancel, make(chan struct{})}
}

// end tells it to stop and waits until it has.
func (p probe) end() {
	p.cancel()
	<-p.done
}
