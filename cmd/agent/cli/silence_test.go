package cli

import (
	"bufio"
	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAToolReportsThatItWaitsForASilentAgent: an agent whose process is stopped accepts questions, since the kernel does, and never answers.
func TestAToolReportsThatItWaitsForASilentAgent(t *testing.T) {
	f := instanceFlags{socket: filepath.Join(t.TempDir(), "agent.sock")}
	listener, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read, write := io.Pipe()
	failed := make(chan error, 1)
	go func() {
		_, err := f.askAloud(ctx, time.Minute, "/v1/status", nil, write, time.Millisecond)
		failed <- err
	}()
	line, err := bufio.NewReader(read).ReadString('\n')
	if err != nil || !strings.Contains(line, f.socket) || !strings.Contains(line, "still waiting") {
		t.Errorf("%q, %v", line, err)
	}
	cancel()
	if err := <-failed; err == nil {
		t.Error("an agent that says nothing has answered")
	}
}
