package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/margay-project/margay/pkg/flows"
)

// FlowMessage is one line of the answer to /v1/flows, which does not end. One field is filled in; Begin comes first.
type FlowMessage struct {
	Begin *FlowBegin    `json:"begin,omitempty"`
	Flow  *flows.Record `json:"flow,omitempty"`
	Lost  uint64        `json:"lost,omitempty"` // records that this client wanted and was too slow for, before the next one
}

// FlowBegin says that the agent sends records from now on.
type FlowBegin struct {
	From time.Time `json:"from,omitzero"` // older ones, though asked for, are not kept any more; zero: all are
	// Dataplane judges the packets. Of some the kernel keeps records while no agent reads them.
	Dataplane string `json:"dataplane,omitempty"`
}

// ErrEnded says that an agent has stopped while it answered.
var ErrEnded = errors.New("the agent has ended")

// Flows has do called with what the agent sends. parameters are those of flows.ParseFilter, and since: a time, now if
// it is not there. It returns nil when ctx ends, do's error, ErrNotRunning if no agent runs, and ErrEnded when it has
// stopped.
func (c Client) Flows(ctx context.Context, parameters url.Values, do func(FlowMessage) error) error {
	transport := c.transport()
	transport.ResponseHeaderTimeout = Patience
	defer transport.CloseIdleConnections()
	response, err := c.get(ctx, transport, "/v1/flows", parameters)
	if ctx.Err() != nil {
		return nil
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("ask the agent on %s: %w", c.Socket, ErrSilent)
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	from := json.NewDecoder(response.Body)
	if response.StatusCode != http.StatusOK {
		var answer Answer
		if err := from.Decode(&answer); err != nil || answer.Error == "" {
			return fmt.Errorf("ask the agent on %s for flows: status %s; is it of this version?", c.Socket, response.Status)
		}
		return errors.New(answer.Error)
	}
	for {
		var m FlowMessage
		err := from.Decode(&m)
		var syntax *json.SyntaxError
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &syntax):
			return fmt.Errorf("flows from the agent on %s: %w", c.Socket, err)
		case err != nil && !errors.Is(err, io.EOF):
			return fmt.Errorf("%w: %w", ErrEnded, err)
		case err != nil:
			return ErrEnded
		}
		if err := do(m); err != nil {
			return err
		}
	}
}
