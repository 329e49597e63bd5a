package agent

import (
	"context"
	"fmt"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/model"
)

// View is the loop's state, shown to a query while the loop waits. Nothing of it may be kept or changed.
type View struct {
	Graph    *calc.Graph
	Settings *config.Layers
	// Updates are the last update of every object that is present.
	Updates func() []model.Update
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

func (l *Loop) view() View {
	return View{Graph: l.o.Graph, Settings: l.o.Settings, Updates: func() []model.Update {
		all := make([]model.Update, 0, len(l.state))
		for _, u := range l.state {
			all = append(all, u)
		}
		return all
	}}
}

func (l *Loop) remember(u model.Update) {
	switch key, present := model.KeyOf(u); {
	case key == model.InSyncKey:
		l.synced = true
	case !present:
		delete(l.state, key)
	default:
		l.state[key] = u
	}
}
