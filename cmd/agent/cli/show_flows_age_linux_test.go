package cli

import (
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/model"
)

// TestAgeIsSaidOnlyIfTheTimeoutIsKnown: the kernel gives a connection with data that is not acknowledged 300 s instead of five days.
func TestAgeIsSaidOnlyIfTheTimeoutIsKnown(t *testing.T) {
	settings := map[string]time.Duration{"tcp_timeout_established": 432000 * time.Second, "tcp_timeout_unacknowledged": 300 * time.Second,
		"tcp_timeout_max_retrans": 200 * time.Second, "tcp_timeout_close_wait": 60 * time.Second, "udp_timeout": 30 * time.Second}
	r := trackedReader{timeouts: func(setting string) (time.Duration, bool) {
		d, ok := settings[setting]
		return d, ok
	}}
	for _, c := range []struct {
		what     string
		protocol uint8
		state    uint8
		left     int
		want     string
	}{
		{"just used", model.ProtoTCP, conntrack.TCPEstablished, 431999, "1.0s"},
		{"with data that is not acknowledged", model.ProtoTCP, conntrack.TCPEstablished, 300, "-"},
		{"with such data, or many retransmissions", model.ProtoTCP, conntrack.TCPEstablished, 150, "-"},
		{"idle for long", model.ProtoTCP, conntrack.TCPEstablished, 301, "431699.0s"},
		{"closing, by a shorter time-out", model.ProtoTCP, conntrack.TCPCloseWait, 50, "10.0s"},
		{"with more time than the setting gives", model.ProtoTCP, conntrack.TCPCloseWait, 61, "-"},
		{"in a state whose setting is not known", model.ProtoTCP, conntrack.TCPSynSent, 1, "-"},
		{"UDP", model.ProtoUDP, 0, 10, "20.0s"},
	} {
		e := conntrack.Entry{Original: conntrack.Tuple{Protocol: c.protocol}, TCPState: c.state, Timeout: time.Duration(c.left) * time.Second}
		if got := ageText(r.age(e)); got != c.want {
			t.Errorf("%s: the age is %s, want %s", c.what, got, c.want)
		}
	}
}
