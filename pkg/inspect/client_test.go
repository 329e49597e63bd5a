package inspect

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"
)

// A stopped process keeps its socket, and the kernel accepts connections for it.
func TestAnAgentThatDoesNotAnswerIsAnErrorThatSaysWhatToDo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = (Client{Socket: path}).AskWithin(t.Context(), 50*time.Millisecond, "/v1/status", nil)
	if !errors.Is(err, ErrSilent) {
		t.Errorf("without an answer: %v", err)
	}
	go func() {
		conn, err := l.Accept() // the question that has ended
		for err == nil {
			_, _ = http.ReadRequest(bufio.NewReader(conn)) // an answer that comes before the question is none
			_, _ = conn.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"))
			conn, err = l.Accept()
		}
	}()
	_, err = (Client{Socket: path}).AskWithin(t.Context(), 200*time.Millisecond, "/v1/status", nil)
	if !errors.Is(err, ErrSilent) {
		t.Errorf("with half an answer: %v", err)
	}
}
