package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/margay-project/margay/pkg/health"
	"github.com/margay-project/margay/pkg/validate"
)

// Look is one thing on the node, outside of the datastore, that is looked at from time to time because it may keep
// policy from being enforced as it is written.
type Look struct {
	What  string        // is looked for, as in "IPVS"
	Every time.Duration // between two looks; more than zero
	// Find returns its findings, one line each: the finding, its effect on policy, and the remedy. The agent is not
	// ready while there is a finding. It is called by one goroutine at a time and may take a while.
	Find func() ([]string, error)
}

// surroundings are what the looks found last. Safe for concurrent use.
type surroundings struct {
	looks     []Look
	component *health.Component
	logged    *problems // of run

	mu     sync.Mutex // guards all below
	found  [][]string // by look
	failed []error    // by look
}

func newSurroundings(looks []Look, c *health.Component, log *slog.Logger) *surroundings {
	return &surroundings{looks: looks, component: c, found: make([][]string, len(looks)), failed: make([]error, len(looks)),
		logged: newProblems(log, "something on this node keeps policy from being enforced as it is written",
			"nothing on this node keeps policy from being enforced any more")}
}

// run looks until ctx ends.
func (s *surroundings) run(ctx context.Context) {
	next := make([]time.Time, len(s.looks)) // due at once
	for {
		now := time.Now()
		wait := time.Hour
		for i, look := range s.looks {
			if !next[i].After(now) {
				s.note(i)
				next[i] = now.Add(look.Every)
			}
			wait = min(wait, next[i].Sub(now))
		}
		s.report()
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// note looks once. Earlier findings stay if the look fails.
func (s *surroundings) note(i int) {
	found, err := s.looks[i].Find()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed[i] = nil
	if err != nil {
		s.failed[i] = fmt.Errorf("could not look for %s: %w", s.looks[i].What, err)
		return
	}
	s.found[i] = found
}

// report passes the findings to the probes and the log. A failed look does not make the agent unready: it is no
// evidence of a finding.
func (s *surroundings) report() {
	findings, failures := s.results()
	s.component.Report(health.Report{Live: true, Ready: len(findings) == 0,
		Detail: strings.Join(append(findings[:len(findings):len(findings)], failures...), "; ")})
	var errs []error
	for _, text := range append(findings, failures...) {
		errs = append(errs, errors.New(text))
	}
	s.logged.report(errors.Join(errs...))
}

func (s *surroundings) results() (findings, failures []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.looks {
		findings = append(findings, s.found[i]...)
		if s.failed[i] != nil {
			failures = append(failures, s.failed[i].Error())
		}
	}
	return findings, failures
}

// problems are the findings as problems of the node.
func (s *surroundings) problems(node string) []validate.Problem {
	var all []validate.Problem
	findings, failures := s.results()
	for _, reason := range append(findings, failures...) {
		all = append(all, validate.Problem{Ref: validate.Ref{Kind: "Node", Name: node}, Severity: validate.Warning, Reason: reason})
	}
	return all
}
