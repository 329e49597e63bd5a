package kube

import (
	"net/http"
	"os"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// renewToken makes a configuration show the token that is now where the one came from which the server refused: tokens
// expire, and nothing restarts the agent when a new one is written into the file. Of a token in a file of its own
// client-go sees within a minute that it changed; of one in the kubeconfig it never does.
func renewToken(config *rest.Config, kubeconfig, user string) {
	token := &token{}
	switch {
	case config.BearerTokenFile != "":
		token.read = func() (string, error) {
			text, err := os.ReadFile(config.BearerTokenFile)
			return strings.TrimSpace(string(text)), err
		}
	case config.BearerToken != "":
		token.known, config.BearerToken = config.BearerToken, ""
		token.read = func() (string, error) {
			file, err := clientcmd.LoadFromFile(kubeconfig)
			if err != nil || file.AuthInfos[user] == nil {
				return "", err
			}
			return file.AuthInfos[user].Token, nil
		}
	default:
		return
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &renewedToken{next: next, token: token} })
}

// token is what a client shows. Safe for concurrent use.
type token struct {
	read func() (string, error) // reads the present token

	mu    sync.Mutex
	known string // empty: requests have one already
}

// shownBy is the token that the request has, or gets.
func (t *token) shownBy(req *http.Request) string {
	if has, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer "); ok {
		return has
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known
}

// instead returns the token to show after one was refused, and false if there is no other. A failure to read it counts
// as no other token: the error to report is the refusal, which the caller has.
func (t *token) instead(refused string) (string, bool) {
	now, err := t.read()
	if err != nil || now == "" || now == refused {
		return "", false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known != "" {
		t.known = now
	}
	return now, true
}

// renewedToken shows a token, and another one if that is refused and there is one.
type renewedToken struct {
	next  http.RoundTripper
	token *token
}

// RoundTrip implements http.RoundTripper.
func (r *renewedToken) RoundTrip(req *http.Request) (*http.Response, error) {
	shown := r.token.shownBy(req)
	answer, err := r.next.RoundTrip(bearing(req, shown))
	if err != nil || answer.StatusCode != http.StatusUnauthorized || req.Body != nil && req.GetBody == nil {
		return answer, err
	}
	other, ok := r.token.instead(shown)
	if !ok {
		return answer, nil
	}
	again := bearing(req, other)
	if req.Body != nil {
		if again.Body, err = req.GetBody(); err != nil {
			return answer, nil
		}
	}
	answer.Body.Close() // its content is known: the token was refused
	return r.next.RoundTrip(again)
}

// WrappedRoundTripper lets client-go find the transport, to close its connections.
func (r *renewedToken) WrappedRoundTripper() http.RoundTripper { return r.next }

// bearing is the request with the token.
func bearing(req *http.Request, token string) *http.Request {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+token)
	return req
}
