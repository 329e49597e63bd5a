package echo

import (
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Outcome is how an attempt to reach something ended.
type Outcome uint8

const (
	Failed      Outcome = iota // none of the others: the attempt itself went wrong
	Connected                  // an answer came from the other side
	Refused                    // TCP RST to the SYN, or ICMP port unreachable
	Reset                      // the connection stood and was reset
	Timeout                    // no answer, as when something drops
	Unreachable                // an ICMP error other than port unreachable, or no route
	numOutcomes
)

var outcomeNames = [numOutcomes]string{"failed", "connected", "refused", "reset", "timeout", "unreachable"}

func (o Outcome) String() string {
	if o < numOutcomes {
		return outcomeNames[o]
	}
	return "unknown"
}

// Attempt is the result of one try.
type Attempt struct {
	Outcome     Outcome
	Established bool          // TCP: the handshake completed, whatever came later
	Server      string        // what the server that answered calls itself: host name:port/protocol
	Retransmits uint64        // TCP: how often the kernel sent a segment again
	Took        time.Duration // from the first packet to the outcome
	Err         error         // what the outcome was made of; nil when Connected
}

// OutcomeOf is the outcome of an attempt that ended with err; nil: an answer came.
func OutcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Connected
	case errors.Is(err, unix.ECONNREFUSED):
		return Refused
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return Reset
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, unix.ETIMEDOUT):
		return Timeout
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EACCES),
		errors.Is(err, unix.ENOPROTOOPT), errors.Is(err, unix.EHOSTDOWN):
		return Unreachable
	}
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		return Timeout
	}
	return Failed
}
