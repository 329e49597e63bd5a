package lab_test

import (
	"net"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/labtest"
	"github.com/margay-project/margay/pkg/lab"
)

// A socket keeps 2,000 datagrams that arrive before its process reads the first one.
func TestDatagramsWaitForAProcessWithoutCPU(t *testing.T) {
	const datagrams = 2000
	n := labtest.Node(t, labtest.New(t), "a")
	var server *net.UDPConn
	var client net.Conn
	if err := n.Do(func() (err error) {
		if server, err = net.ListenUDP("udp", &net.UDPAddr{IP: n.Addr4().AsSlice()}); err == nil {
			client, err = net.Dial("udp", server.LocalAddr().String())
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	defer client.Close()
	if err := lab.MakeRoom(server); err != nil {
		t.Fatal(err)
	}
	for range datagrams {
		if _, err := client.Write(make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
	}
	if err := server.SetReadDeadline(time.Now().Add(labtest.Soon)); err != nil {
		t.Fatal(err)
	}
	for i := range datagrams {
		if _, err := server.Read(make([]byte, 64)); err != nil {
			t.Fatalf("%d of %d datagrams are there: %v", i, datagrams, err)
		}
	}
}
