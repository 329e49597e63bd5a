package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/margay-project/margay/pkg/flows"
	"github.com/margay-project/margay/pkg/inspect"
)

// flowsAtOnce is how many records are taken before they are sent.
const flowsAtOnce = 256

// flows sends records as they come, until the client leaves or the agent stops. A client that reads too slowly loses
// records and holds up no other part.
func (a *API) flows(w http.ResponseWriter, r *http.Request) {
	parameters := r.URL.Query()
	filter, err := flows.ParseFilter(parameters)
	since := time.Now()
	if text := parameters.Get("since"); text != "" && err == nil {
		if since, err = time.Parse(time.RFC3339Nano, text); err != nil {
			err = fmt.Errorf("since %q: want a time as in 2006-01-02T15:04:05Z", text)
		}
	}
	if err == nil && a.Flows == nil {
		err = fmt.Errorf("this agent reads no events")
	}
	if err != nil {
		write(w, inspect.Answer{}, err)
		return
	}
	control := http.NewResponseController(w)
	stop := context.AfterFunc(r.Context(), func() {
		// A write that waits for the client would keep the agent from stopping. If no deadline can be set, it is closed
		// later.
		_ = control.SetWriteDeadline(time.Now())
	})
	defer stop()
	s := a.Flows.Subscribe(filter, since)
	defer s.Close()
	w.Header().Set("Content-Type", "application/x-ndjson")
	to := json.NewEncoder(w)
	err = to.Encode(inspect.FlowMessage{Begin: &inspect.FlowBegin{From: s.From(), Dataplane: a.Plane.Name()}})
	for err == nil {
		if err = control.Flush(); err == nil {
			err = sendFlows(r.Context(), s, to)
		}
	}
	// It ends because the client has gone, or the agent stops: there is no client left to report it to.
}

// sendFlows waits for records and sends them.
func sendFlows(ctx context.Context, s *flows.Subscription, to *json.Encoder) error {
	records, lost, err := s.Next(ctx, flowsAtOnce)
	if err == nil && lost > 0 {
		err = to.Encode(inspect.FlowMessage{Lost: lost})
	}
	for _, record := range records {
		if err == nil {
			err = to.Encode(inspect.FlowMessage{Flow: record})
		}
	}
	return err
}
