package ruleset

import (
	"cmp"
	"slices"
)

// optionKind is the way to read an option: the number of its words, and the function that makes a canonical option from them. A
// result with an empty name means the same as no option, and is left out.
type optionKind struct {
	words int
	read  func(words []string, negated bool) (Option, error)
}

type options map[string]optionKind

// basic are the options of every rule.
var basic = options{
	"-s": addressed("-s"), "--source": addressed("-s"), "--src": addressed("-s"),
	"-d": addressed("-d"), "--destination": addressed("-d"), "--dst": addressed("-d"),
	"-i": word("-i"), "--in-interface": word("-i"),
	"-o": word("-o"), "--out-interface": word("-o"),
	"-p": protocolOption("-p"), "--protocol": protocolOption("-p"), "--proto": protocolOption("-p"),
}

// basicOrder is the order in which iptables-save prints them.
var basicOrder = []string{"-s", "-d", "-i", "-o", "-p"}

// protocolMatches are the matches that iptables loads by itself for the options of a protocol.
var protocolMatches = map[string]string{"1": "icmp", "6": "tcp", "17": "udp", "58": "icmp6", "132": "sctp"}

// matches are the known matches with their options.
var matches = map[string]options{
	"tcp": {
		"--sport": ports("--sport"), "--source-port": ports("--sport"),
		"--dport": ports("--dport"), "--destination-port": ports("--dport"),
		"--tcp-flags": tcpFlags(2), "--syn": tcpFlags(0), "--tcp-option": number("--tcp-option"),
	},
	"udp":   portOptions,
	"sctp":  portOptions,
	"icmp":  {"--icmp-type": icmpType("--icmp-type")},
	"icmp6": {"--icmpv6-type": icmpType("--icmpv6-type")},
	"mark":  {"--mark": masked("--mark")}, "connmark": {"--mark": masked("--mark")},
	"conntrack": {
		"--ctstate": list("--ctstate"), "--ctdir": word("--ctdir"), "--ctproto": protocolOption("--ctproto"),
		"--ctstatus": list("--ctstatus"), "--ctrepldst": addressed("--ctrepldst"),
	},
	"set":     {"--match-set": setAndPlaces("--match-set"), "--return-nomatch": flag("--return-nomatch")},
	"comment": {"--comment": word("--comment")},
	"limit":   {"--limit": rate("--limit"), "--limit-burst": numberUnless("--limit-burst", "5")},
	"multiport": {
		"--sports": portList("--sports"), "--source-ports": portList("--sports"),
		"--dports": portList("--dports"), "--destination-ports": portList("--dports"),
		"--ports": portList("--ports"),
	},
	"rt":       {"--rt-type": number("--rt-type"), "--rt-segsleft": interval("--rt-segsleft")},
	"bpf":      {"--bytecode": word("--bytecode")},
	"addrtype": {"--src-type": list("--src-type"), "--dst-type": list("--dst-type")},
	"pkttype":  {"--pkt-type": word("--pkt-type")},
}

var portOptions = options{
	"--sport": ports("--sport"), "--source-port": ports("--sport"),
	"--dport": ports("--dport"), "--destination-port": ports("--dport"),
}

// targets are the known targets that have options. Any other name is a chain or a target without options.
var targets = map[string]options{
	"MARK":     markOptions,
	"CONNMARK": markOptions,
	"SET": {
		"--map-set": setAndPlaces("--map-set"), "--map-mark": flag("--map-mark"), "--map-prio": flag("--map-prio"),
		"--map-queue": flag("--map-queue"), "--add-set": setAndPlaces("--add-set"), "--del-set": setAndPlaces("--del-set"),
		"--exist": flag("--exist"),
	},
	"NFLOG": {
		"--nflog-group": number("--nflog-group"), "--nflog-prefix": word("--nflog-prefix"), "--nflog-size": number("--nflog-size"),
		"--nflog-range": number("--nflog-range"), "--nflog-threshold": numberUnless("--nflog-threshold", "1"),
	},
	"REJECT": {"--reject-with": rejection("--reject-with")},
	"CT":     {"--notrack": flag("--notrack")},
}

var markOptions = options{
	"--set-xmark": newMark(func(value, mask uint32) (uint32, uint32) { return value, mask }),
	"--set-mark":  newMark(func(value, mask uint32) (uint32, uint32) { return value, value | mask }),
	"--and-mark":  newMark(func(value, _ uint32) (uint32, uint32) { return 0, ^value }),
	"--or-mark":   newMark(func(value, _ uint32) (uint32, uint32) { return value, value }),
	"--xor-mark":  newMark(func(value, _ uint32) (uint32, uint32) { return value, 0 }),
}

// finish sorts the parts that a text may have in any order, and leaves out matches without effect.
func (p *parser) finish() Rule {
	slices.SortStableFunc(p.rule.Basic.Options, func(a, b Option) int {
		return cmp.Compare(slices.Index(basicOrder, a.Name), slices.Index(basicOrder, b.Name))
	})
	p.rule.Matches = slices.DeleteFunc(p.rule.Matches, func(m Part) bool {
		return len(m.Options) == 0 && protocolMatches[p.number] == m.Name
	})
	for i := range p.rule.Matches {
		sortOptions(p.rule.Matches[i])
	}
	sortOptions(p.rule.Target)
	return p.rule
}

func sortOptions(p Part) {
	slices.SortStableFunc(p.Options, func(a, b Option) int { return cmp.Compare(a.Name, b.Name) })
}
