package agent_test

import (
	"testing"

	"github.com/margay-project/margay/pkg/ipsets"
)

// rulesDamages are done one after the other, each to a kernel that is as it should be.
var rulesDamages = []rulesDamage{
	{"the jump of FORWARD is deleted", mangle("-D FORWARD -j W-FORWARD"), "web: ingress of 10.0.0.1 is not judged: the policy of chain FORWARD accepts it"},
	{"a rule that accepts stands before it", mangle("-I FORWARD -j ACCEPT"), "web: ingress of 10.0.0.1 is not judged: chain FORWARD, rule 1 (-j ACCEPT), accepts it"},
	{"a rule that accepts some", mangle("-I FORWARD -p tcp -m tcp --dport 7 -j ACCEPT"), "stands before ours"},
	{"a rule that Margay does not know stands before", mangle("-I FORWARD -m length --length 1:9 -j ACCEPT"), "stands before ours"},
	{"a chain of others before", mangle(":other - [0:0]", "-A other -s 10.0.0.0/8 -j ACCEPT", "-I FORWARD -j other"), "stands before ours"},
	{"the jump of INPUT is deleted", mangle("-D INPUT -j W-INPUT"), "chain INPUT: it lacks the rule"},
	{"the jump of OUTPUT is deleted", mangle("-D OUTPUT -j W-OUTPUT"), "chain OUTPUT: it lacks the rule"},
	{"the jump of POSTROUTING is deleted", mangle("-D POSTROUTING 1"), "chain POSTROUTING: it lacks the rule"},
	{"what is translated is not looked at", mangle("-F W-translated"), "mgyA-translated"},
	{"packets to Services are not looked at", cut("leaving", `--ctstate DNAT`), "mgyA-leaving"},
	{"flows that have ended go on", cut("leaving", `-m mark --mark`), "mgyA-leaving"},
	{"a jump of table filter is deleted", func(t *testing.T, k *meddler) { k.restore(t, "iptables", "filter", "-D FORWARD 1") }, "IPv4 table filter, chain FORWARD"},
	{"packets that were not judged pass", func(t *testing.T, k *meddler) { k.restore(t, "iptables", "filter", "-F W-unjudged") }, "mgyA-unjudged"},
	{"a jump of IPv6 is deleted", func(t *testing.T, k *meddler) { k.restore(t, "ip6tables", "mangle", "-D FORWARD -j W-FORWARD") }, "egress of fd00::1 is not judged"},
	{"the jump of FORWARD stands behind a rule that accepts", mangle("-A FORWARD -j ACCEPT", "-D FORWARD -j W-FORWARD", "-A FORWARD -j W-FORWARD"), "web: egress of 10.0.0.1 is not judged: chain "},
	{"the chain of both ends allows first", first("F"), "mgyA-F: rule 1"},
	{"a jump leads to another chain", mangle("-R FORWARD 1 -j W-ok"), `its rules to our chains are ["-j mgyA-ok"]`},
	{"a jump is there twice", mangle("-A PREROUTING -j W-FORWARD"), "chain PREROUTING"},
	{"chain FORWARD of ours is flushed", mangle("-F W-FORWARD"), "web: egress of 10.0.0.1 is not judged"},
	{"chain F is flushed", mangle("-F W-F"), "mgyA-F: "},
	{"chain R is flushed", mangle("-F W-R"), "mgyA-R: "},
	{"chain ok is flushed", mangle("-F W-ok"), "should allow it"},
	{"chain ok accepts", mangle("-R W-ok 1 -j ACCEPT"), "mgyA-ok: rule 1"},
	{"chain deny is flushed", mangle("-F W-deny"), "mgyA-deny: "},
	{"chain deny allows", mangle("-I W-deny -j ACCEPT"), "allows it by chain"},
	{"chain deny returns", mangle("-I W-deny -j MARK --set-xmark 0x20000000/0x20000000", "-I W-deny 2 -j RETURN"), "allows it by chain"},
	{"chain allow is flushed", mangle("-F W-allow"), "mgyA-allow: "},
	{"another generation", edit("allow", `--set-xmark 0x[0-9a-f]+/0xbfff0000`, "--set-xmark 0x87770000/0xbfff0000"), "mgyA-allow: rule 4"},
	{"the way of flows under way", edit("FORWARD", `-m connmark --mark 0x[0-9a-f]+/0xbfff0000`, "-m connmark --mark 0x0/0x80000000"), "mgyA-FORWARD: rule"},
	{"anti-spoofing is deleted", func(t *testing.T, k *meddler) { k.restore(t, "iptables", "raw", "-D PREROUTING 1") }, "table raw, chain PREROUTING: "},
	{"spoofed packets return", func(t *testing.T, k *meddler) { k.restore(t, "iptables", "raw", "-F W-spoofed") }, "table raw, chain mgyA-spoofed: "},
	{"anti-spoofing of the node is deleted", cut("INPUT", `-own src,src`), "mgyA-INPUT: rule"},
	{"the check of destinations is deleted", cut("FORWARD", `-own dst,dst`), "mgyA-FORWARD: rule"},
	{"tunnels are allowed", cut("encap", `-p (gre|47) `), "mgyA-encap"},
	{"odd flags are allowed", mangle("-F W-odd"), "mgyA-odd"},
	{"ICMP errors are not compared", mangle("-F W-error"), "mgyA-error"},
	{"the node is open", mangle("-I W-INPUT -j ACCEPT"), "mgyA-INPUT: rule 1"},
	{"the node reaches pods that are not open", cut("OUTPUT", `-own dst,dst`), "mgyA-OUTPUT"},
	{"the class of the node", edit("node", `0x[0-9a-f]+/`, "0x990000/"), "mgyA-node: rule 1"},
	{"flows are not reset", func(t *testing.T, k *meddler) { k.restore(t, "iptables", "filter", "-D W-unjudged 2") }, "mgyA-unjudged: rule 2"},
	{"the tree of ingress is flushed", mangle("-F W-in"), "ingress of 10.0.0.1 is not judged"},
	{"the tree of egress leads elsewhere", mangle("-F W-eg", "-A W-eg -g W-ok"), "egress of 10.0.0.1 is not judged"},
	{"a port is another one", edit("s", `--dport 5432`, "--dport 5433"), "10.0.0.2:5433 tcp: the ruleset allows it"},
	{"a port of answers is another one", edit("s", `--sport 5432`, "--sport 5433"), "the ruleset for answers denies it"},
	{"a rule that allows is deleted", cut("s", `--dport 80 `), ":80 tcp: the ruleset denies it"},
	{"a rule is negated", edit("s", `--dport 80 `, "! --dport 80 "), ":80 tcp: the ruleset denies it"},
	{"a rule for another protocol", edit("s", `-p tcp -m tcp --dport 80 `, "-p udp -m udp --dport 80 "), ":80 udp: the ruleset allows it"},
	{"a rule that allows a protocol", insert("s", `--dport 80 `, "-p udp -m udp --dport 4000:5000 -g W-ok"), ":4000 udp: the ruleset allows it"},
	{"a rule that allows a kind of ICMP", insert("s", `--dport 80 `, "-p icmp -m icmp --icmp-type 8 -g W-ok"), "icmp type 8 code 0: the ruleset allows it"},
	{"a rule that allows another protocol", insert("s", `--dport 80 `, "-p 47 -g W-ok"), "the ruleset allows it by chain"},
	{"a rule that denies first", insert("s", `--dport 80 `, "-j DROP"), ":80 tcp: the ruleset denies it by chain"},
	{"a rule for one address", insert("s", `--dport 80 `, "-s 10.0.0.7/32 -j ACCEPT"), "rule"},
	{"a slot takes its class from the other end", edit("class-in", `-class src --map-mark`, "-class dst --map-mark"), "-class dst"},
	{"a slot does not look for classes", cut("class-in", `-class src --map-mark`), "the ruleset denies it"},
	{"a class has another place in the tree", edit("s", `-m mark --mark 0x[1-9a-f][0-9a-f]*/0x1[0-9a-f]+ `, "-m mark --mark 0x5550000/0x1fff0000 "), "the ruleset"},
	{"a slot does not deny an address without a class", cut("s", `--mark 0x0/0x1fff0000 -g mgy.-deny`), "rule"},
	{"a chain is added", mangle(":W-more - [0:0]", "-A W-more -j ACCEPT"), "mgyA-more: it was added"},
	{"the seal is altered", mangle("-F W-seal"), "mgyA-seal"},
	{"a pod is not open", entry("own", "10.0.0.2/32", "calidb", gone), "db: egress of 10.0.0.2 is not judged"},
	{"somebody else's address is open", entry("own", "10.0.0.9/32", "calidb", as(0, 0)), "should not have it"},
	{"a pod is open on another interface", entry("own", "10.0.0.2/32", "caliweb", as(0, 0)), "10.0.0.2/32,caliweb"},
	{"a pod has no egress", entry("eg", "10.0.0.2/32", "calidb", gone), "db: egress of 10.0.0.2 is not judged"},
	{"a pod has no ingress", entry("in", "fd00::2/128", "calidb", gone), "db: ingress of fd00::2 is not judged"},
	{"a pod has the slot of another", func(t *testing.T, k *meddler) {
		other := ipsets.Mark{}
		entry("in", "10.0.0.1/32", "caliweb", func(e *ipsets.Entry) bool { other = e.Mark; return true })(t, k)
		entry("in", "10.0.0.2/32", "calidb", func(e *ipsets.Entry) bool { e.Mark = other; return true })(t, k)
	}, "db ingress: "},
	{"a pod has a slot that is not there", entry("in", "10.0.0.2/32", "calidb", as(0x7770000, 0x3fff0000)), "db: ingress of 10.0.0.2 is not judged"},
	{"a pod is allowed everything", entry("in", "10.0.0.2/32", "calidb", as(0x20000000, 0x3fff0000)), "db: ingress of 10.0.0.2 is not judged"},
	{"an entry of a slot has another mask", entry("in", "10.0.0.2/32", "calidb", func(e *ipsets.Entry) bool { e.Mark.Mask = 0x1fff0000; return true }), "mgyA4-in has"},
	{"an address has no class", entry("class", "10.0.0.1/32", "", gone), "the class of address 10.0.0.1"},
	{"an address has the class of another", func(t *testing.T, k *meddler) {
		other := ipsets.Mark{}
		entry("class", "10.0.0.1/32", "", func(e *ipsets.Entry) bool { other = e.Mark; return true })(t, k)
		entry("class", "10.0.0.3/32", "", func(e *ipsets.Entry) bool { e.Mark = other; return true })(t, k)
	}, "10.0.0.3:0 -> 10.0.0.2:5432 tcp: the ruleset allows it"},
	{"an address has a class that there is not", entry("class", "10.0.0.1/32", "", as(0x7770000, 0x1fff0000)), "5432 tcp: the ruleset denies it"},
	{"an address has a mark that allows", entry("class", "192.0.2.0/24", "", as(0x20010000, 0x3fff0000)), "the class of address 192.0.2.0"},
	{"an address has an entry that says no", entry("class", "10.0.0.1/32", "", func(e *ipsets.Entry) bool { e.NoMatch = true; return true }), "5432 tcp: the ruleset denies it"},
	{"a longer prefix has the class of another", entry("class", "198.51.100.7/32", "", as(0x10000, 0x1fff0000)), "198.51.100.7"},
	{"half of all addresses has no class", entry("class", "0.0.0.0/1", "", gone), "has no entry for 0.0.0.0/0"},
	{"the set of open pods is empty", func(t *testing.T, k *meddler) { k.ipset(t, "flush W4-own") }, "web: egress of 10.0.0.1 is not judged"},
	{"the set of classes is empty", func(t *testing.T, k *meddler) { k.ipset(t, "flush W4-class") }, "has no entry for 0.0.0.0/0"},
	{"a pod has a further source more", entry("src1-eg", "198.51.100.0/24", "", as(0x10000, 0x3fff0000)), "mgyA4-src1-eg has the entry 198.51.100.0/24"},
	{"a pod has a further source less", entry("src1-in", "10.9.0.0/16", "", gone), "mgyA4-src1-in lacks the entry 10.9.0.0/16"},
	{"the address of the node is a further source", entry("owned", "192.168.0.1/32", "", gone), "mgyA4-owned lacks the entry 192.168.0.1/32"},
	{"further sources answer for others", func(t *testing.T, k *meddler) { k.restore(t, "iptables", "raw", "-F W-stray") }, "mgyA-stray"},
	{"two sets are exchanged", func(t *testing.T, k *meddler) { k.ipset(t, "swap W4-eg W4-in") }, "mgyA4-in has"},
}

func gone(*ipsets.Entry) bool { return false }

// as gives an entry a mark.
func as(value, mask uint32) func(*ipsets.Entry) bool {
	return func(e *ipsets.Entry) bool {
		e.Mark = ipsets.Mark{Value: value, Mask: mask}
		return true
	}
}
