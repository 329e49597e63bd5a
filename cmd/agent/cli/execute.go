// Package cli is the command margay: one file for each verb, and the composition root in assemble.go. What an agent does on its node is
// package node's.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// exitCode is an error that only sets the exit status: everything worth saying has been printed.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit status %d", int(c)) }

// Main runs the command line of this process and ends the process with its exit status.
func Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	status := execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// execute runs one command line, with standard input of this process, and returns its exit status.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return executeFrom(ctx, args, os.Stdin, stdout, stderr)
}

func executeFrom(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	cmd := root()
	cmd.SetArgs(args)
	cmd.SetIn(stdin)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	knownCommandsOnly(cmd)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[exitCode](err); ok {
		return int(code)
	}
	fmt.Fprintln(stderr, "margay:", err)
	return 2
}
