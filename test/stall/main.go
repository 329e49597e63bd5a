// Stall runs a command that is stopped for random moments, to find tests that depend on how fast the machine is:
//
//	go test -exec "$PWD/bin/stall" -count 3 ./pkg/...
//
// It ends with the exit code of the command. Processes that the command starts are not stopped; for agents of whole-agent tests
// see MARGAY_E2E_STALL in CONTRIBUTING.md.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/margay-project/margay/internal/stall"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: stall COMMAND [ARGUMENT...]")
		os.Exit(2)
	}
	os.Exit(run(os.Args[1], os.Args[2:]...))
}

// run returns the exit code of the command.
func run(name string, arguments ...string) int {
	cmd := exec.Command(name, arguments...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "stall: start:", err)
		return 2
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT) // go test sends SIGQUIT at its timeout
	ended := make(chan struct{})
	go func() {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s) // it fails only if the command has ended
		case <-ended:
		}
	}()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stall.Until(ended, cmd.Process)
	}()
	err := cmd.Wait()
	close(ended)
	<-stopped
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "stall:", err)
	return 2
}
