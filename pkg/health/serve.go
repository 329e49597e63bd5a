package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 10 * time.Second
	// stopWithin is how long an answer may take once the agent stops.
	stopWithin = 2 * time.Second
	// mostConnections is how many clients a server has at once. Probes and scrapers are a handful.
	mostConnections = 256
)

// Address completes the address of a server: "9099" and ":9099" are on loopback, and so never reachable from other
// machines by accident; "0.0.0.0:9099" and "[::]:9099" are on all interfaces. The host must be an IP address or
// localhost. An error describes the mistake.
func Address(text string) (string, error) {
	if !strings.Contains(text, ":") {
		text = ":" + text
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return "", fmt.Errorf("address %q: want PORT or HOST:PORT, an IPv6 host in brackets", text)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("address %q: port %q is not a number from 1 to 65535", text, port)
	}
	switch {
	case host == "" || host == "localhost":
		host = "127.0.0.1"
	case net.ParseIP(host) == nil:
		return "", fmt.Errorf("address %q: host %q is no IP address; use 0.0.0.0 for all interfaces", text, host)
	}
	return net.JoinHostPort(host, port), nil
}

// Serve answers HTTP on the address (see Address) until ctx ends, and returns when the answers in the making are done.
// what names the content in logs: "health", "metrics". The agent must not end for it, so that an address that is taken
// is tried again, less and less often, and said once. An error only says that the address is not valid.
func Serve(ctx context.Context, what, address string, handler http.Handler, log *slog.Logger) error {
	complete, err := Address(address)
	if err != nil {
		return fmt.Errorf("serve %s: %w", what, err)
	}
	log = log.With("what", what, "address", complete)
	said := ""
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", complete)
		if err == nil {
			if said != "" {
				log.Info("serves now")
			}
			said, wait = "", firstRetry
			err = serve(ctx, limit(listener, mostConnections), handler, log)
		}
		if ctx.Err() != nil {
			return nil
		}
		if text := err.Error(); text != said {
			log.Error("cannot serve "+what+", tries again; policy is enforced all the same"+hint(err, what), "err", err)
			said = text
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// hint says what to do about an error of listening, if that is known.
func hint(err error, what string) string {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return ""
	}
	return ": another program has the port (ss -lntp names it); end that, or give the agent another --" + what + "-address"
}

// serve answers on one listener until ctx ends or the listener fails.
func serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	var answering sync.RWMutex // held for reading by each answer in the making
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !answering.TryRLock() {
				return // stopping
			}
			defer answering.RUnlock()
			handler.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      2 * time.Minute, // CPU profiles are recorded before they are written
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
		defer cancel()
		if server.Shutdown(limit) != nil {
			server.Close()
		}
	})
	err := server.Serve(listener)
	if stop() {
		err = errors.Join(err, server.Close())
	} else {
		<-stopped
	}
	// Answers use what the caller closes next. Their contexts and connections have ended, so they end, too.
	answering.Lock() // never unlocked: no further answer begins
	return err
}

// Profiles adds the profiles of the running process below /debug/pprof/ to mux. They show memory and can slow the
// agent down: only for those who ask for them.
func Profiles(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
}
