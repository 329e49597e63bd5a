package stall

import (
	"bufio"
	"os/exec"
	"testing"
)

// A stopped process goes on when the stalls end, and one that has ended ends them.
func TestUntilLeavesTheProcessRunning(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		Until(done, cmd.Process)
	}()
	lines := bufio.NewScanner(out)
	echo := func() {
		t.Helper()
		if _, err := in.Write([]byte("x\n")); err != nil {
			t.Fatal(err)
		}
		if !lines.Scan() {
			t.Fatal("the command has ended")
		}
	}
	for range 20 {
		echo()
	}
	close(done)
	<-stopped
	echo()
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	Until(make(chan struct{}), cmd.Process)
}
