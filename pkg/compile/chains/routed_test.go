package chains

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// most is as many instructions as the match bpf takes.
const most = 64

// run runs a program as the kernel does; a load beyond the packet ends it with 0.
func run(t *testing.T, list []instruction, packet []byte) uint32 {
	t.Helper()
	if len(list) > most {
		t.Fatalf("a program has %d instructions, and the match bpf takes %d", len(list), most)
	}
	var a, x uint32
	var memory [16]uint32
	load := func(at uint32, size int) bool {
		if uint64(at)+uint64(size) > uint64(len(packet)) {
			return false
		}
		if a = uint32(packet[at]); size == 4 {
			a = binary.BigEndian.Uint32(packet[at:])
		}
		return true
	}
	for pc := 0; ; pc++ {
		i, ok, branch := list[pc], true, false
		switch i.code {
		case loadWord:
			ok = load(i.k, 4)
		case loadByte:
			ok = load(i.k, 1)
		case loadWordAtX:
			ok = load(x+i.k, 4)
		case loadByteAtX:
			ok = load(x+i.k, 1)
		case loadX:
			x = i.k
		case copyToX:
			x = a
		case store:
			memory[i.k] = a
		case loadStored:
			a = memory[i.k]
		case andWith:
			a &= i.k
		case shiftLeft:
			a <<= i.k
		case addX:
			a += x
		case addTo:
			a += i.k
		case ifEqual:
			branch = a == i.k
		case ifAtLeast:
			branch = a >= i.k
		case ifEqualX:
			branch = a == x
		case ifAtLeastX:
			branch = a >= x
		case giveBack:
			return i.k
		default:
			t.Fatalf("instruction %d has the unknown code %#x", pc, i.code)
		}
		if !ok {
			return 0
		}
		if branch {
			pc += int(i.yes)
		} else {
			pc += int(i.no)
		}
	}
}

// mayRoute says the same of options as routedByOptions, from the RFC.
func mayRoute(options []byte) bool {
	for n := 0; len(options) > 0; n++ {
		switch {
		case n == mostOptions:
			return true
		case options[0] == 0:
			return false
		case options[0] == 1:
			options = options[1:]
		case options[0] == 131 || options[0] == 137 || len(options) < 2 || options[1] < 2 || int(options[1]) > len(options):
			return true
		default:
			options = options[options[1]:]
		}
	}
	return false
}

func TestSourceRoutesAreFound(t *testing.T) {
	program := routedByOptions()
	header := func(options []byte) []byte {
		packet := append(make([]byte, 20), options...)
		packet[0] = 0x40 | byte(len(packet)/4)
		return append(packet, make([]byte, 40)...)
	}
	r := rand.New(rand.NewPCG(1, 2))
	routed := 0
	for range 20_000 {
		var options []byte
		for size := 4 * r.IntN(11); len(options) < size; {
			options = append(options, []byte{0, 1, 1, 7, 68, 131, 137, 148, byte(r.Uint32())}[r.IntN(9)], byte(r.IntN(12)))
			options = append(options, make([]byte, r.IntN(9))...)
			options = options[:min(len(options), size)]
		}
		want := mayRoute(options)
		if want {
			routed++
		}
		if got := run(t, program, header(options)) != 0; got != want {
			t.Fatalf("options %x: found %v, want %v", options, got, want)
		}
	}
	if routed < 1000 || routed > 19_000 {
		t.Errorf("%d of 20,000 have routes: the test says little", routed)
	}
	record := append([]byte{1, 7, 39, 4}, make([]byte, 36)...) // ping -R
	for name, options := range map[string][]byte{"none": nil, "router alert": {148, 4, 0, 0}, "record route": record, "two routes": {131, 3, 4, 131, 3, 4, 0, 0}} {
		if got, want := run(t, program, header(options)) != 0, name == "two routes"; got != want {
			t.Errorf("%s: found %v, want %v", name, got, want)
		}
	}
}

func TestRoutingHeadersAreFound(t *testing.T) {
	header := func(next, left byte) []byte { return []byte{next, 0, 0, left, 0, 0, 0, 0} }
	for name, c := range map[string]struct {
		first   byte
		headers [][]byte
		want    bool
	}{
		"none":                               {17, nil, false},
		"no segment left":                    {43, [][]byte{header(17, 0)}, false},
		"one left":                           {43, [][]byte{header(17, 1)}, true},
		"one left behind options":            {0, [][]byte{header(43, 9), header(17, 1)}, true},
		"none left behind options":           {60, [][]byte{header(43, 9), header(17, 0)}, false},
		"one left in the second":             {43, [][]byte{header(43, 0), header(17, 1)}, true},
		"one left behind a long header":      {60, [][]byte{append([]byte{43, 1, 0, 0}, make([]byte, 12)...), header(17, 255)}, true},
		"behind an authentication header":    {51, [][]byte{header(43, 0), header(17, 1)}, true},
		"an authentication header behind it": {43, [][]byte{header(51, 0), header(17, 0)}, true},
		"as many headers as are looked at":   {0, [][]byte{header(60, 0), header(43, 0), header(17, 0)}, false},
		"one left in the last of these":      {0, [][]byte{header(60, 0), header(43, 0), header(17, 1)}, true},
		"more headers than are looked at":    {0, [][]byte{header(60, 0), header(60, 0), header(43, 0), header(17, 0)}, true},
	} {
		packet := make([]byte, 40)
		packet[0], packet[6] = 0x60, c.first
		for _, h := range c.headers {
			packet = append(packet, h...)
		}
		if got := run(t, routedByHeaders(), append(packet, make([]byte, 16)...)) != 0; got != c.want {
			t.Errorf("%s: found %v, want %v", name, got, c.want)
		}
	}
}
