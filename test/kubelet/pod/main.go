// Command pod is what containers of the test run. Without arguments it waits for its end. With ports it answers HTTP on each of them, and
// connects for those who ask it to: GET /dial?to=ADDRESS:PORT says "connected", or why not.
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	http.HandleFunc("/dial", dial)
	for _, port := range os.Args[1:] {
		go func() {
			fmt.Fprintln(os.Stderr, http.ListenAndServe(":"+port, nil))
			os.Exit(1)
		}()
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	<-end
}

func dial(w http.ResponseWriter, r *http.Request) {
	c, err := net.DialTimeout("tcp", r.URL.Query().Get("to"), time.Second)
	if err != nil {
		fmt.Fprint(w, err)
		return
	}
	c.Close()
	fmt.Fprint(w, "connected")
}
