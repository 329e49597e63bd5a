package iptables

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// machine is the kernel behind the commands of one backend.
type machine struct {
	backend        Backend
	save4, save6   command
	write4, write6 command
	lock           lock         // of the legacy backend
	transactions   transactions // of nftables
	tolerated      []nftTable   // tables in which Misplaced has found a chain
	older          bool         // iptables-nft is of a version before nativeSince
	unlike         string       // what Prove has found that these commands write otherwise than hidden knows; then hidden finds nothing
}

func (m *machine) commands(family Family) (save, write command) {
	if family == V6 {
		return m.save6, m.write6
	}
	return m.save4, m.write4
}

// commandPatience bounds the time of one command. A context bounds the wait for others, not the work: iptables-nft-restore needs
// many seconds for a large table, and if a shorter context stopped it, each attempt would end like that.
const commandPatience = time.Minute

func (m *machine) save(ctx context.Context, family Family, table string, counters bool) (string, error) {
	if slices.Contains(m.tolerated, key(family, table)) {
		return "", nil
	}
	save, _ := m.commands(family)
	args := []string{"-t", table}
	if counters {
		args = append(args, "-c")
	}
	output, err := m.work(ctx, save, "", args...)
	var exit *exited
	if m.backend == Legacy || whole(output, err) || err != nil && !errors.As(err, &exit) {
		return output, err
	}
	pieces, failed := m.savePieces(ctx, family, table, counters)
	if failed != nil && err != nil {
		failed = fmt.Errorf("%w; one chain after the other: %w", err, failed)
	}
	return pieces, failed
}

// restore waits for the lock before it starts the command, so that it can measure the wait and end it with ctx. Another process may
// lock in between. Then the command waits, for patience at most, and restore starts again.
func (m *machine) restore(ctx context.Context, family Family, transaction string) (waited time.Duration, err error) {
	const patience = "1" // seconds
	_, write := m.commands(family)
	for {
		if m.backend == Legacy {
			w, err := m.lock.wait(ctx)
			waited += w
			var locked *LockedError
			if errors.As(err, &locked) {
				locked.Waited = waited
			}
			if err != nil {
				return waited, err
			}
		}
		start := time.Now()
		_, err := m.work(ctx, write, transaction, "-w", patience, "--noflush")
		var exit *exited
		switch {
		case !errors.As(err, &exit):
			return waited, err
		case exit.status == statusLocked && strings.Contains(exit.message, "xtables lock"):
			waited += time.Since(start)
			continue
		}
		return waited, refused(exit, transaction)
	}
}

// work runs a command to its end.
func (m *machine) work(ctx context.Context, c command, input string, args ...string) (string, error) {
	ctx, cancel := patient(ctx)
	defer cancel()
	return c.run(ctx, input, args...)
}

// patient returns the context of work that goes on when ctx ends.
func patient(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), commandPatience)
}

func (m *machine) locked() bool { return m.backend == Legacy && m.lock.held() }

// statusLocked is the exit status of iptables if it did not get the lock. The status has other meanings, too.
const statusLocked = 4

var lineNumber = regexp.MustCompile(`line:? (\d+)`)

// refused returns the error of a refused transaction, with the line that the command's message names.
func refused(exit *exited, transaction string) *RefusedError {
	e := &RefusedError{Command: exit.command, Message: exit.message}
	if e.Message == "" {
		e.Message = fmt.Sprintf("exit status %d", exit.status)
	}
	found := lineNumber.FindStringSubmatch(exit.message)
	if found == nil {
		return e
	}
	e.Line, _ = strconv.Atoi(found[1])
	rest := transaction
	for range e.Line - 1 {
		_, rest, _ = strings.Cut(rest, "\n")
	}
	e.Text, _, _ = strings.Cut(rest, "\n")
	return e
}
