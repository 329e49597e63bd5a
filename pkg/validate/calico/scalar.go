package calico

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/margay-project/margay/pkg/model"
)

// Scalar is a field that holds a number or a text: a port, a protocol. It accepts every JSON value, so that an error is
// reported with its place.
type Scalar struct {
	text   string // of the number, or the string itself
	quoted bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Scalar) UnmarshalJSON(raw []byte) error {
	s.quoted = len(raw) > 0 && raw[0] == '"'
	if s.quoted {
		return json.Unmarshal(raw, &s.text)
	}
	s.text = string(raw)
	return nil
}

// MarshalJSON implements json.Marshaler.
func (s Scalar) MarshalJSON() ([]byte, error) {
	if s.quoted {
		return json.Marshal(s.text)
	}
	return []byte(s.text), nil
}

// protocol is the number of a protocol. The second value describes the error; empty: there is none.
func (s Scalar) protocol() (number uint8, wrong string) {
	for _, p := range []uint8{model.ProtoTCP, model.ProtoUDP, model.ProtoSCTP, model.ProtoICMP, model.ProtoICMPv6, model.ProtoUDPLite} {
		if s.quoted && strings.EqualFold(s.text, model.ProtocolName(p)) {
			return p, ""
		}
	}
	if n, err := strconv.ParseUint(s.text, 10, 8); err == nil && n > 0 {
		return uint8(n), ""
	}
	return 0, "must be TCP, UDP, SCTP, UDPLite, ICMP, ICMPv6 or a number of 1 to 255"
}

const (
	wantPort     = "must be a port of 0 to 65535, a range such as 8080:8090, or the name of a port"
	maxPortName  = 128
	wantPortName = "is no name of a port: at most 128 letters, digits, '_', '.' and '-'"
)

// port is a range of ports, or the name of one. The last value describes the error; empty: there is none.
func (s Scalar) port() (ports model.PortRange, name, wrong string) {
	lo, hi, isRange := strings.Cut(s.text, ":")
	if !isRange {
		hi = lo
	}
	switch {
	case isDigits(lo) && isDigits(hi):
		l, errLo := strconv.ParseUint(lo, 10, 16)
		h, errHi := strconv.ParseUint(hi, 10, 16)
		switch {
		case errLo != nil || errHi != nil:
			return ports, "", wantPort
		case l > h:
			return ports, "", "the range ends before it begins"
		}
		return model.PortRange{Lo: uint16(l), Hi: uint16(h)}, "", ""
	case !s.quoted || s.text == "":
		return ports, "", wantPort
	case len(s.text) > maxPortName || strings.ContainsFunc(s.text, isNotOfPortName):
		return ports, "", wantPortName
	}
	return ports, s.text, ""
}

func isDigits(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(c rune) bool { return c < '0' || c > '9' })
}

func isNotOfPortName(c rune) bool {
	return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("_.-", c))
}
