package cli

import (
	"io"
	"log/slog"
	"math"
	"os"
	"time"

	"golang.org/x/term"
)

// newLogger writes text to a terminal and JSON otherwise.
func newLogger(w io.Writer, level slog.Leveler) *slog.Logger {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: durationText}))
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: durationSeconds}))
}

// durationSeconds gives durations the unit and the spelling that they have in all JSON of Margay: a number of seconds in a
// field whose name ends in Seconds. slog would write nanoseconds and no unit.
func durationSeconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() != slog.KindDuration {
		return a
	}
	return slog.Float64(a.Key+"Seconds", seconds(a.Value.Duration()))
}

// durationText leaves three digits, as other output for people does.
func durationText(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.DurationValue(brief(a.Value.Duration()))
	}
	return a
}

// seconds is a duration as JSON has it, to the microsecond.
func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1e6) / 1e6 }

// brief rounds a duration to three digits.
func brief(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d.Abs() >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit)
}
