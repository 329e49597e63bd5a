package chains

// instruction is one instruction of classic BPF, as in -m bpf --bytecode. A load beyond the packet ends a program with 0: no match.
type instruction struct {
	code    uint16
	yes, no uint8 // the instructions that a jump skips
	k       uint32
}

// Codes of instructions.
const (
	loadWord     = 0x20 // A = 32 bits at k
	loadByte     = 0x30
	loadWordAtX  = 0x40 // at X + k
	loadByteAtX  = 0x50
	headerLength = 0xb1 // X = length of the IPv4 header
	copyToX      = 0x07 // X = A
	ifEqual      = 0x15 // A == k
	ifAtLeast    = 0x35
	ifEqualX     = 0x1d // A == X
	ifAtLeastX   = 0x3d
	loadX        = 0x01 // X = k
	store        = 0x02 // memory k = A
	loadStored   = 0x60 // A = memory k
	andWith      = 0x54 // A &= k
	shiftLeft    = 0x64
	addX         = 0x0c // A += X
	addTo        = 0x04 // A += k
	giveBack     = 0x06
)

// quotesOwn returns programs that match all ICMP messages but errors with a forbidden quote. An error to a pod must quote a packet
// that the receiver of the error has sent; an error from a pod must also quote one that the pod has received. Otherwise an error
// could carry data to any address. In IPv6 an error behind an extension header does not match.
func quotesOwn(family uint8) (from, to []instruction) {
	if family == 4 {
		return quotes4(true), quotes4(false)
	}
	return quotes6(true), quotes6(false)
}

// program is a program in which each condition leads to the next instruction or to the end.
type program struct {
	list  []instruction
	fails []int // jumps to the end if they do not hold
}

func (p *program) add(i ...instruction) { p.list = append(p.list, i...) }

// demand goes on only if A is X.
func (p *program) demand(code uint16, k uint32) {
	p.fails = append(p.fails, len(p.list))
	p.add(instruction{code: code, k: k})
}

// done ends the program: it matches here.
func (p *program) done() []instruction {
	p.add(instruction{code: giveBack, k: 1}, instruction{code: giveBack})
	for _, at := range p.fails {
		p.list[at].no = uint8(len(p.list) - 2 - at)
	}
	return p.list
}

const icmpHeader = 8

func quotes4(from bool) []instruction {
	var p program
	errors := []uint32{3, 4, 5, 11, 12}
	p.add(instruction{code: headerLength}, instruction{code: loadByteAtX})
	for i, typ := range errors { // a match skips the rest of the list and the instruction behind it
		p.add(instruction{code: ifEqual, yes: uint8(len(errors) - i), k: typ})
	}
	p.add(instruction{code: giveBack, k: 1})
	same := func(inner, outer uint32) {
		p.add(instruction{code: headerLength}, instruction{code: loadWordAtX, k: icmpHeader + inner},
			instruction{code: copyToX}, instruction{code: loadWord, k: outer})
		p.demand(ifEqualX, 0)
	}
	same(12, 16) // the quoted source, the destination
	if from {
		same(16, 12)
	}
	return p.done()
}

func quotes6(from bool) []instruction {
	const header, icmp = 40, 58
	var p program
	p.add(instruction{code: loadByte, k: 6})
	p.demand(ifEqual, icmp)
	p.add(instruction{code: loadByte, k: header}, instruction{code: ifAtLeast, no: 1, k: 128}, instruction{code: giveBack, k: 1})
	same := func(inner, outer uint32) {
		for word := uint32(0); word < 16; word += 4 {
			p.add(instruction{code: loadWord, k: header + icmpHeader + inner + word}, instruction{code: copyToX},
				instruction{code: loadWord, k: outer + word})
			p.demand(ifEqualX, 0)
		}
	}
	same(8, 24)
	if from {
		same(24, 8)
	}
	return p.done()
}
