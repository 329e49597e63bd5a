package kube

import (
	"context"
	"log/slog"

	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// QuietLibrary sends what client-go says on its own account to log, at debug level: its callers report what matters,
// once, in their own words. Its loggers are those of the process, so this is to be called once, before any client is
// used.
func QuietLibrary(log *slog.Logger) {
	klog.SetSlogLogger(slog.New(quiet{log.Handler()}))
	// The usual list also blocks a caller that reports two errors in a millisecond.
	runtime.ErrorHandlers = []runtime.ErrorHandler{func(ctx context.Context, err error, msg string, keysAndValues ...any) {
		klog.FromContext(ctx).Error(err, msg, keysAndValues...)
	}}
}

// quiet makes every record one of debug level, and leaves out those that the library itself only has for debugging: one
// for the body of each request, and more.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo && q.Handler.Enabled(ctx, slog.LevelDebug)
}

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	if !q.Enabled(ctx, r.Level) {
		return nil // errors are not asked about
	}
	r.Level = slog.LevelDebug
	return q.Handler.Handle(ctx, r)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }
