// Package endpointstatus writes the files by which a CNI plugin learns that a pod's policy is enforced, so that it can
// hold back the pod's containers until then: one for each local endpoint, in the place, with the name and the content
// that Calico's plugin waits for when its policy_setup_timeout_seconds is set.
package endpointstatus

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/margay-project/margay/pkg/health"
)

const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 10 * time.Second
	// lookEvery is how often the directory is read again, for what somebody else has changed there.
	lookEvery = 10 * time.Second
)

// Status is how it stands with the files.
type Status struct {
	Files  int    // that are there, as far as known
	Failed int    // that the last attempt could not write or remove; all that are wanted if it could not use the directory
	Writes uint64 // of files, since the start
	Error  string // of the last attempt; empty: all that is wanted is there, and nothing else
}

// Writer keeps the files as they are wanted. Want and Status may be called from any goroutine, and never wait for a disk.
type Writer struct {
	dir       directory
	log       *slog.Logger
	component *health.Component
	wake      chan struct{}

	mu           sync.Mutex // guards the fields below
	wanted       []Endpoint
	desiredKnown bool            // Want has been called: files that are not wanted may be removed
	kept         map[string]bool // before that: the interfaces whose files stay; nil: those of all
	status       Status
}

// New makes a writer of files in dir, which it creates; nothing happens before Run. Calico's plugin looks in
// /var/run/calico/endpoint-status unless it is configured otherwise. The component has the failure of the last attempt as its
// detail, and is always ready.
func New(dir string, component *health.Component, log *slog.Logger) *Writer {
	component.Report(health.Report{Live: true, Ready: true})
	return &Writer{dir: directory(dir), log: log, component: component, wake: make(chan struct{}, 1)}
}

// Want sets the endpoints that are enforced now; others have no files from then on. The slice is the writer's. The
// first call must come after the first full snapshot has been enforced: until then the files of an earlier agent stay,
// because its policy is still enforced, but for those that Keep has removed.
func (w *Writer) Want(enforced []Endpoint) {
	w.mu.Lock()
	w.wanted, w.desiredKnown = enforced, true
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Keep removes, until the first call of Want, the files of an earlier agent that name none of these interfaces. Their pods have gone, or
// were made again under their names: then the plugin must not find the files, since the new interface is closed. The map is the writer's.
func (w *Writer) Keep(interfaces map[string]bool) {
	w.mu.Lock()
	w.kept = interfaces
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Status is how it stands with the files.
func (w *Writer) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// Run keeps the files equal to the wanted ones until ctx ends. Then it returns nil and leaves the files, as enforcement
// stays too. A failure is logged when it is new, and tried again.
func (w *Writer) Run(ctx context.Context) error {
	var there map[string]string // nil: to be read
	said, wait := map[string]bool{}, firstRetry
	look := time.NewTimer(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.wake:
		case <-look.C:
			there = nil
		}
		var err error
		if there, err = w.reconcile(there); err == nil {
			wait = firstRetry
			look.Reset(lookEvery)
		} else {
			look.Reset(wait)
			wait = min(2*wait, lastRetry)
		}
		w.logChange(said, err)
	}
}

// reconcile writes and removes the files that differ, as far as it can, and returns the files that exist now.
func (w *Writer) reconcile(there map[string]string) (map[string]string, error) {
	w.mu.Lock()
	endpoints, known, kept := w.wanted, w.desiredKnown, w.kept
	w.mu.Unlock()
	if !known {
		errs := w.removeOthers(kept)
		err := errors.Join(errs...)
		w.note(nil, 0, len(errs), err)
		return nil, err
	}
	wanted, err := files(endpoints)
	if err == nil && there == nil {
		if err = w.dir.make(); err == nil {
			there, err = w.dir.read()
		}
	}
	if err != nil {
		w.note(there, 0, max(len(endpoints), 1), err)
		return nil, err
	}
	var errs []error
	writes := uint64(0)
	write, remove := difference(wanted, there)
	for _, name := range write { // first: a plugin may be waiting for them
		if err := w.dir.write(name, wanted[name]); err != nil {
			errs = append(errs, err)
			continue
		}
		there[name] = wanted[name]
		writes++
	}
	for _, name := range remove {
		if err := w.dir.remove(name); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(there, name)
	}
	err = errors.Join(errs...)
	w.note(there, writes, len(errs), err)
	if err != nil {
		return nil, err // the directory itself may be gone: read again
	}
	return there, nil
}

// removeOthers removes the files of an earlier agent whose interfaces are not kept; nil: all are.
func (w *Writer) removeOthers(kept map[string]bool) (errs []error) {
	if kept == nil {
		return nil
	}
	there, err := w.dir.read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return []error{err}
	}
	for name, text := range there {
		if kept[interfaceOf(text)] {
			continue
		}
		if err := w.dir.remove(name); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

func (w *Writer) note(there map[string]string, writes uint64, failed int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status.Files, w.status.Failed, w.status.Error = len(there), failed, ""
	w.status.Writes += writes
	report := health.Report{Live: true, Ready: true} // policy is enforced; and a tenant can choose a name that no file can have
	if err != nil {
		w.status.Error = err.Error()
		report.Detail = "files for CNI plugins cannot be written or removed, so pods may wait although their policy is enforced, or not wait although it is not: " + list(err)[0].Error()
	}
	w.component.Report(report)
}

// mostLines bounds how many failures of one attempt are logged: a full disk fails for every file.
const mostLines = 5

// logChange logs the failures that are not in the log yet; logged is kept up to date.
func (w *Writer) logChange(logged map[string]bool, err error) {
	now := map[string]bool{}
	lines := 0
	for _, err := range list(err) {
		text := err.Error()
		now[text] = true
		if !logged[text] && lines < mostLines {
			w.log.Error("endpoint status files are not up to date, so CNI plugins may wait for policy that is enforced, or not wait for policy that is not; will try again", "err", text)
			lines++
		}
	}
	if len(now) == 0 && len(logged) > 0 {
		w.log.Info("endpoint status files are up to date again")
	}
	clear(logged)
	for text := range now {
		logged[text] = true
	}
}

// list takes joined errors apart.
func list(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}
