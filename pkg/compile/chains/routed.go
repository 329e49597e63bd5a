package chains

// The options of IPv4 headers that are looked at (RFC 791).
const (
	optionEnd         = 0
	optionNothing     = 1 // one byte, as the end
	optionLooseRoute  = 131
	optionStrictRoute = 137
)

const (
	shortestHeader = 20
	// mostOptions are as many options as a program of the match bpf, which has 64 instructions, can look at.
	mostOptions = 4
)

// routedByOptions matches IPv4 packets with a source route, with malformed options (Linux stops reading at the same byte), and with
// more than mostOptions options. A kernel that follows source routes replaces the destination after PREROUTING, so policy would judge
// another one than that of the connection, and it sends errors back along the route.
func routedByOptions() []instruction {
	const end = 0 // in the program's memory: where the header ends. X is where the option begins.
	var w dropMatch
	w.add(instruction{code: loadByte}, instruction{code: andWith, k: 0xf}, instruction{code: shiftLeft, k: 2},
		instruction{code: store, k: end}, instruction{code: loadX, k: shortestHeader})
	w.ifSo(passes, instruction{code: ifEqualX})
	for range mostOptions {
		w.add(instruction{code: loadByteAtX})
		w.ifSo(passes, instruction{code: ifEqual, k: optionEnd})
		w.ifSo(drops, instruction{code: ifEqual, k: optionLooseRoute})
		w.ifSo(drops, instruction{code: ifEqual, k: optionStrictRoute})
		w.add(instruction{code: ifEqual, yes: 2, k: optionNothing}) // the length of that option is 1, like its number
		w.add(instruction{code: loadByteAtX, k: 1})
		w.ifNot(drops, instruction{code: ifAtLeast, k: 2})
		w.add(instruction{code: addX}, instruction{code: copyToX}, instruction{code: loadStored, k: end})
		w.ifSo(passes, instruction{code: ifEqualX})
		w.ifNot(drops, instruction{code: ifAtLeastX})
	}
	return w.done()
}

// dropMatch is a program that matches packets to be dropped. A packet that comes to its end matches.
type dropMatch struct {
	list  []instruction
	jumps []jump
}

// jump is a condition, with its targets if its condition holds and if it does not.
type jump struct {
	at       int
	drop, so bool
}

const passes, drops = false, true

func (w *dropMatch) add(i ...instruction) { w.list = append(w.list, i...) }

func (w *dropMatch) ifSo(drop bool, i instruction) {
	w.jumps = append(w.jumps, jump{len(w.list), drop, true})
	w.add(i)
}

func (w *dropMatch) ifNot(drop bool, i instruction) {
	w.jumps = append(w.jumps, jump{len(w.list), drop, false})
	w.add(i)
}

// done ends the program.
func (w *dropMatch) done() []instruction {
	end := len(w.list)
	w.add(instruction{code: giveBack, k: 1}, instruction{code: giveBack})
	for _, j := range w.jumps {
		far := uint8(end - j.at - 1)
		if !j.drop {
			far++
		}
		if j.so {
			w.list[j.at].yes = far
		} else {
			w.list[j.at].no = far
		}
	}
	return w.list
}

// quotesHopByHop matches IPv6 packets whose ICMPv6 message quotes one with a hop-by-hop header.
func quotesHopByHop() []instruction {
	const quoted, nextHeader, hopByHop = 40 + icmpHeader, 6, 0
	return []instruction{{code: loadByte, k: quoted + nextHeader}, {code: ifEqual, no: 1, k: hopByHop}, {code: giveBack, k: 1}, {code: giveBack}}
}

// mostHeaders are as many extension headers as a program of the match bpf can look at.
const mostHeaders = 3

// routedByHeaders matches IPv6 packets with a routing header, at any place, that has segments left. It also matches packets for which
// this cannot be decided: those with more than mostHeaders extension headers, or with other headers before that of the transport.
func routedByHeaders() []instruction {
	const (
		hopByHop, routing, fragment, authentication, destination = 0, 43, 44, 51, 60

		header, nextHeader = 40, 6
		next               = 0 // in the program's memory; X is where the header begins that A names
	)
	var w dropMatch
	w.add(instruction{code: loadX, k: header}, instruction{code: loadByte, k: nextHeader})
	for range mostHeaders {
		w.add(instruction{code: ifEqual, yes: 5, k: routing}, instruction{code: ifEqual, yes: 6, k: destination}, instruction{code: ifEqual, yes: 5, k: hopByHop})
		w.ifSo(drops, instruction{code: ifEqual, k: fragment})
		w.ifSo(drops, instruction{code: ifEqual, k: authentication})
		w.ifNot(passes, instruction{code: ifEqual, k: authentication})
		w.add(instruction{code: loadByteAtX, k: 3})
		w.ifNot(drops, instruction{code: ifEqual, k: 0})
		w.add(instruction{code: loadByteAtX}, instruction{code: store, k: next}, instruction{code: loadByteAtX, k: 1},
			instruction{code: addTo, k: 1}, instruction{code: shiftLeft, k: 3}, instruction{code: addX}, instruction{code: copyToX},
			instruction{code: loadStored, k: next})
	}
	for _, further := range []uint32{hopByHop, routing, fragment, authentication} {
		w.ifSo(drops, instruction{code: ifEqual, k: further})
	}
	w.ifNot(passes, instruction{code: ifEqual, k: destination})
	return w.done()
}
