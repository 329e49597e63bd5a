package agent

import (
	"context"
	"fmt"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/config"
)

// View is the loop's state, shown to a query while the loop waits. Nothing of it may be kept or changed.
type View struct {
	Graph    *calc.Graph
	Settings *config.Layers
}

type query struct {
	do   func(View)
	done chan struct{}
}

// Query calls do with the loop's state, between two batches. do must be quick: enforcement waits for it.
func (l *Loop) Query(ctx context.Context, do func(View)) error {
	q := query{do: do, done: make(chan struct{})}
	select {
	case l.queries <- q:
		<-q.done
		return nil
	case <-ctx.Done():
		return fmt.Errorf("ask the agent: %w", ctx.Err())
	}
}
