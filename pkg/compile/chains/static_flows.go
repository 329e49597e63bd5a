package chains

// flows are matches of connections by their marks: by what policy has decided about them.
type flows struct {
	marks Marks
	// allowed is the mark of those that the policy in force has allowed.
	allowed Value
	// sctpUntracked: marks of connections of SCTP mean nothing, see KernelTraits.
	sctpUntracked bool
}

// withoutConnection matches packets that conntrack does not track and those that it finds invalid. No match of connection marks matches
// them, whether it is negated or not.
const withoutConnection = "-m conntrack --ctstate INVALID,UNTRACKED"

// current matches those that the policy in force has allowed.
func (f *flows) current() string { return connmark("", f.allowed) }

// revoked matches those that the policy in force has denied, and an earlier one had allowed.
func (f *flows) revoked() string { return connmark("", f.marks.denies(f.allowed)) }

// unjudged matches those that policy has not allowed before.
func (f *flows) unjudged() string { return connmark("", Value{0, f.marks.generation()}) }

// judged matches those that policy has allowed before.
func (f *flows) judged() string { return connmark("! ", Value{0, f.marks.generation()}) }

// notAllowed matches those that policy has never judged, and those that it has come to deny.
func (f *flows) notAllowed() string { return connmark("", Value{0, f.marks.passed()}) }

// notOpened matches those that policy has not allowed, and those that an answer of the node began: the first packet of another flow of
// the node is a SYN, which policy does not judge.
func (f *flows) notOpened() string {
	return connmark("! ", Value{f.marks.passed(), f.marks.passed() | f.marks.turned()})
}

// lone matches those that a stray packet has begun.
func (f *flows) lone() string { return connmark("", f.marks.Lone()) }

// turned matches those whose first packet on record was an answer.
func (f *flows) turned() string { return connmark("", f.turn()) }

// notTurned matches all others that are tracked.
func (f *flows) notTurned() string { return connmark("! ", f.turn()) }

// turn is the change of the mark of a connection whose first packet on record was an answer.
func (f *flows) turn() Value { return Value{f.marks.turned(), f.marks.turned()} }

// fast lets packets that match pass, of flows that the policy in force has allowed. A flow that a conntrack helper expected, for example of
// FTP, inherits the mark of the flow that announced it. So its first packet, which is RELATED, is judged.
func (f *flows) fast(match string) string {
	return both(match, "-m conntrack ! --ctstate RELATED "+f.current()+" -j RETURN")
}

// known matches packets of protocols whose flows conntrack knows.
func (f *flows) known() string { return when(f.sctpUntracked, "! -p sctp") }

// answered lets answers pass in flows that the node has opened: flows whose first packet on record was an answer of the node it has not
// opened, see host.output.
func (f *flows) answered() string { return f.notTurned() + " -m conntrack --ctdir REPLY -j RETURN" }

// connmark matches connections by their marks; not is "" or "! ".
func connmark(not string, v Value) string { return "-m connmark " + not + "--mark " + v.String() }

// setConnmark changes the mark of a packet's connection.
func setConnmark(v Value) string { return "-j CONNMARK --set-xmark " + v.String() }
