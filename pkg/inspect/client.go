package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/margay-project/margay/pkg/explain"
)

// ErrNotRunning says that no agent answers on the socket.
var ErrNotRunning = errors.New("no agent runs there")

// ErrNoSnapshot says that the agent cannot answer from objects, since it has none before the first snapshot of the datastore.
var ErrNoSnapshot = errors.New("the agent has not read the datastore yet, so it knows no objects; what was enforced before stays enforced " +
	"(margay show status says what it waits for)")

// ErrSilent says that an agent has accepted a question and not answered it in time.
var ErrSilent = errors.New("no answer in time: the agent is busy, or its process is stopped or has no CPU; policy stays enforced. Try again, " +
	"and look at its log and the state of its process; margay show flows and margay show drops read the kernel and need no agent")

// Patience is how long an answer may take; explaining in a large cluster is the slowest.
const Patience = time.Minute

// Client asks the agent that listens on Socket. The zero value of everything else is ready for use.
type Client struct{ Socket string }

// Ask asks one question: path is one of the API's, such as "/v1/endpoints", and parameters may be nil. An answer
// with Error becomes an error. Without an agent the error is ErrNotRunning, and of an agent without objects ErrNoSnapshot.
func (c Client) Ask(ctx context.Context, path string, parameters url.Values) (*Answer, error) {
	return c.AskWithin(ctx, Patience, path, parameters)
}

// AskWithin is Ask with another limit than the usual one. If the agent is silent for as long the error is ErrSilent.
func (c Client) AskWithin(ctx context.Context, limit time.Duration, path string, parameters url.Values) (*Answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, ErrSilent)
	defer cancel()
	transport := c.transport()
	defer transport.CloseIdleConnections()
	response, err := c.get(ctx, transport, path, parameters)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var answer Answer
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		if errors.Is(context.Cause(ctx), ErrSilent) {
			err = ErrSilent
		}
		return nil, fmt.Errorf("ask the agent on %s for %s: status %s: %w", c.Socket, path, response.Status, err)
	}
	if response.StatusCode == http.StatusServiceUnavailable {
		return nil, ErrNoSnapshot
	}
	if answer.Error != "" {
		return nil, errors.New(answer.Error)
	}
	return &answer, nil
}

func (c Client) transport() *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", c.Socket)
	}}
}

// get sends one question. The answer's body is the caller's to close.
func (c Client) get(ctx context.Context, transport *http.Transport, path string, parameters url.Values) (*http.Response, error) {
	address := url.URL{Scheme: "http", Host: "agent", Path: path, RawQuery: parameters.Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask the agent on %s: %w", c.Socket, err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("ask the agent on %s: %w", c.Socket, ErrNotRunning)
	}
	if err != nil && errors.Is(context.Cause(ctx), ErrSilent) {
		return nil, fmt.Errorf("ask the agent on %s: %w", c.Socket, ErrSilent)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the agent on %s: %w", c.Socket, errors.Unwrap(err))
	}
	return response, nil
}

// ExplainParameters are the parameters of /v1/explain. The request goes as it was read, so that the agent reads no text.
func ExplainParameters(r explain.Request) (url.Values, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("ask the agent to explain: %w", err)
	}
	return url.Values{"request": {string(text)}}, nil
}
