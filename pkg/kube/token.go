package kube

import (
	"net/http"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// renewToken makes a configuration whose token is written in the kubeconfig itself show the one that is there now:
// tokens expire, and whoever writes a new one into the file does not start the agent anew. (Of a token in a file of its
// own client-go takes care.)
func renewToken(config *rest.Config, kubeconfig, user string) {
	if config.BearerToken == "" || config.BearerTokenFile != "" {
		return
	}
	token := &kubeconfigToken{path: kubeconfig, user: user, token: config.BearerToken}
	config.BearerToken = ""
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &renewedToken{next: next, token: token} })
}

// kubeconfigToken is the token of a user. Safe for concurrent use.
type kubeconfigToken struct {
	path, user string

	mu    sync.Mutex
	token string
}

func (t *kubeconfigToken) current() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.token
}

// instead returns the token to show after one was refused, and false if there is no other. A file that cannot be read
// has none: what is wrong is that the token was refused, which the caller says.
func (t *kubeconfigToken) instead(refused string) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token == refused {
		file, err := clientcmd.LoadFromFile(t.path)
		if err != nil {
			return "", false
		}
		if user := file.AuthInfos[t.user]; user != nil && user.Token != "" {
			t.token = user.Token
		}
	}
	return t.token, t.token != refused
}

// renewedToken shows a token, and another one if that is refused and there is one.
type renewedToken struct {
	next  http.RoundTripper
	token *kubeconfigToken
}

// RoundTrip implements http.RoundTripper.
func (r *renewedToken) RoundTrip(req *http.Request) (*http.Response, error) {
	token := r.token.current()
	answer, err := r.next.RoundTrip(bearing(req, token))
	if err != nil || answer.StatusCode != http.StatusUnauthorized {
		return answer, err
	}
	token, other := r.token.instead(token)
	if !other || req.Body != nil && req.GetBody == nil {
		return answer, nil
	}
	again := bearing(req, token)
	if req.Body != nil {
		if again.Body, err = req.GetBody(); err != nil {
			return answer, nil
		}
	}
	answer.Body.Close() // what it says is known
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
