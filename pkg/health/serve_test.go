package health

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestAddressesAreOnLoopbackUnlessToldOtherwise(t *testing.T) {
	for text, want := range map[string]string{
		"9098":           "127.0.0.1:9098",
		":9098":          "127.0.0.1:9098",
		"localhost:9098": "127.0.0.1:9098",
		"127.0.0.1:9098": "127.0.0.1:9098",
		"[::1]:9098":     "[::1]:9098",
		"0.0.0.0:9098":   "0.0.0.0:9098",
		"[::]:9098":      "[::]:9098",
	} {
		if got, err := Address(text); err != nil || got != want {
			t.Errorf("%s: %q (%v), want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":            `port "" is not a number from 1 to 65535`,
		"0":           `port "0" is not a number`,
		"70000":       `port "70000" is not a number`,
		"host:9098":   `host "host" is no IP address`,
		"::1":         "want PORT or HOST:PORT, an IPv6 host in brackets",
		"http://:909": "want PORT or HOST:PORT",
	} {
		if got, err := Address(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v; want an error with %q", text, got, err, want)
		}
	}
}

// text is a log that may be written by several goroutines.
type text struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *text) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *text) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// server is a Serve that runs.
type server struct {
	log    text
	cancel context.CancelFunc
	done   chan error
}

func start(t *testing.T, address string, handler http.Handler) *server {
	t.Helper()
	s := &server{done: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	s.cancel = cancel
	go func() { s.done <- Serve(ctx, "health", address, handler, slog.New(slog.NewTextHandler(&s.log, nil))) }()
	t.Cleanup(cancel)
	return s
}

func (s *server) stop(t *testing.T) {
	t.Helper()
	s.cancel()
	if err := <-s.done; err != nil {
		t.Error(err)
	}
}

// get asks until there is an answer.
func get(t *testing.T, url string) string {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err == nil {
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			if err != nil {
				t.Fatal(err)
			}
			return string(body)
		}
		<-tick.C
	}
	t.Fatalf("%s does not answer", url)
	return ""
}

func hello(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }

// taken counts the addresses that tests have got.
var taken atomic.Uint32

// ownAddress is an address that nobody else listens at, before the test or meanwhile: it is this process's and test's
// alone, and the port is none that the kernel chooses for those who ask for any.
func ownAddress() string {
	process := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d:9098", 1+process/254%254, 1+process%254, 1+taken.Add(1)%254)
}

func TestAnAddressThatIsTakenIsTriedAgainAndSaidOnce(t *testing.T) {
	address := ownAddress()
	other, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, address, http.HandlerFunc(hello))
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(400 * time.Millisecond); time.Now().Before(deadline); { // a few attempts
		<-tick.C
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if got := get(t, "http://"+address); got != "hello" {
		t.Errorf("answer %q", got)
	}
	s.stop(t)
	log := s.log.String()
	if strings.Count(log, "cannot serve") != 1 || strings.Count(log, "serves now") != 1 || !strings.Contains(log, "address="+address) {
		t.Errorf("log:\n%s", log)
	}
	for _, want := range []string{"another program has the port", "give the agent another --", "policy is enforced all the same"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not say %q:\n%s", want, log)
		}
	}
}

func TestAnAddressThatIsNoneIsAnError(t *testing.T) {
	if err := Serve(t.Context(), "metrics", "nowhere", nil, slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), "serve metrics: address") {
		t.Error(err)
	}
}

func TestServeEndsAfterTheAnswersInTheMaking(t *testing.T) {
	t.Parallel()
	address := ownAddress()
	asked, ended := make(chan struct{}), make(chan struct{})
	s := start(t, address, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
		<-time.After(stopWithin + 100*time.Millisecond) // longer than is waited for connections
		close(ended)
	}))
	go func() {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		for err != nil && t.Context().Err() == nil {
			conn, err = new(net.Dialer).DialContext(t.Context(), "tcp", address)
		}
		if err == nil {
			io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n")
			<-t.Context().Done()
			conn.Close()
		}
	}()
	<-asked
	s.stop(t)
	select {
	case <-ended:
	default:
		t.Error("an answer was still being made")
	}
}

func TestProfilesAreThereWhenAskedFor(t *testing.T) {
	for _, asked := range []bool{true, false} {
		mux := http.NewServeMux()
		New(time.Now).Routes(mux)
		if asked {
			Profiles(mux)
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/pprof/goroutine?debug=1", nil))
		if got := strings.Contains(w.Body.String(), "goroutine profile"); got != asked {
			t.Errorf("asked for %t: answer %t", asked, got)
		}
	}
}
