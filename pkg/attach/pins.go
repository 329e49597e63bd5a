package attach

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
)

// side is one of the two TCX hooks of an interface, by its name in pins.
type side string

const (
	ingress side = "ingress"
	egress  side = "egress"
)

// tcxKey is the place of one TCX link.
type tcxKey struct {
	ifindex uint32
	side    side
}

func (k tcxKey) pin() string { return fmt.Sprintf("%d-%s", k.ifindex, k.side) }

func (k tcxKey) attachType() ebpf.AttachType {
	if k.side == ingress {
		return ebpf.AttachTCXIngress
	}
	return ebpf.AttachTCXEgress
}

// parsePin is the reverse of pin; false: not the pin of a TCX link.
func parsePin(name string) (tcxKey, bool) {
	number, rest, ok := strings.Cut(name, "-")
	ifindex, err := strconv.ParseUint(number, 10, 32)
	if !ok || err != nil || rest != string(ingress) && rest != string(egress) {
		return tcxKey{}, false
	}
	return tcxKey{uint32(ifindex), side(rest)}, true
}

// Place is where a pinned link is attached, as the name of its pin has it.
type Place struct {
	Ifindex uint32 // 0: a netfilter hook
	Side    string // of the interface: ingress or egress, as TCX has them; of a hook the name of the pin
}

// PlaceOf returns the place of the link pinned by that name.
func PlaceOf(pin string) Place {
	if key, ok := parsePin(pin); ok {
		return Place{key.ifindex, string(key.side)}
	}
	return Place{Side: pin}
}

// DetachOrder compares pins by when their links are detached for good. The programs that deliver packets to pods come first: they drop
// packets that programs earlier on the way have not judged. Then come those at the hooks, which drop packets that no program on an
// interface has seen. So no packet is lost that policy allows.
func DetachOrder(pin, other string) int { return cmp.Compare(detachRank(pin), detachRank(other)) }

func detachRank(pin string) int {
	switch key, isTCX := parsePin(pin); {
	case !isTCX:
		return 1
	case key.side == egress:
		return 0
	}
	return 2
}
