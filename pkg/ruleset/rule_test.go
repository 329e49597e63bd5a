package ruleset

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
)

// Texts of one line each mean the same rule; those of different lines do not.
var sameRules = [][]string{
	{"-j DROP", "--jump DROP", "  -j   DROP "},
	{"-g next", "--goto next"},
	{"-j next"},
	{"-s 10.0.0.0/8 -p tcp -m tcp --dport 80 -j DROP", "-p tcp --dport 80 -s 10.1.2.3/8 -j DROP", "-p 6 -m tcp --dport 80:80 --source 10.0.0.0/255.0.0.0 -j DROP",
		"-j DROP -p tcp --dport 80 -s 10.0.0.0/8 -d 0.0.0.0/0"},
	{"! -s 10.0.0.0/8 -p tcp -m tcp --dport 80 -j DROP"},
	{"-p tcp -m tcp ! --dport 0:1023", "-p tcp -m tcp --dport 1024:65535"},
	{"-p tcp -m tcp ! --dport 1024:65535", "-p tcp -m tcp --dport 0:1023", "-p tcp --dport :1023"},
	{"-p tcp -m tcp ! --dport 5:9"},
	{"-p udp -m udp --sport 1024:65535", "-p udp --source-port 1024:"},
	{"-p udp", "-p udp -m udp", "-p 17 --dport 0:65535", "-p 0x11"},
	{"-p ipencap", "-p 4"},
	{"-m mark --mark 0x1/0xff", "-m mark --mark 1/255"},
	{"-m mark --mark 0x1", "-m mark --mark 0x1/0xffffffff"},
	{"-m connmark --mark 0x1"},
	{"-j MARK --set-xmark 0x1/0xffffffff", "-j MARK --set-mark 1"},
	{"-j MARK --set-xmark 0x1/0xff", "-j MARK --set-mark 0x1/0xfe"},
	{"-j MARK --set-xmark 0x0/0xff", "-j MARK --and-mark 0xffffff00"},
	{"-j MARK --set-xmark 0x3/0x3", "-j MARK --or-mark 0x3"},
	{"-j MARK --set-xmark 0x3/0x0", "-j MARK --xor-mark 0x3"},
	{"-m conntrack --ctstate RELATED,NEW", "-m conntrack --ctstate NEW,RELATED"},
	{"-m conntrack ! --ctstate RELATED,NEW"},
	{"-m conntrack --ctrepldst 192.0.2.1", "-m conntrack --ctrepldst 192.0.2.1/32", "-m conntrack --ctrepldst 192.0.2.1/255.255.255.255"},
	{"-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN", "-p tcp --syn", "-p tcp -m tcp --tcp-flags ACK,SYN,FIN,RST SYN"},
	{"-p tcp ! --syn", "-p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN"},
	{"-p icmp -m icmp --icmp-type 3/4", "-p icmp --icmp-type 3/4"},
	{"-p ipv6-icmp -m icmp6 --icmpv6-type 128", "-p icmpv6 --icmpv6-type 128"},
	{"-m limit --limit 1/sec", "-m limit --limit 60/minute --limit-burst 5"},
	{"-m limit --limit 1/sec --limit-burst 6"},
	{`-m comment --comment "a b"`, `-m comment --comment "a \b"`},
	{`-m comment --comment ab`, `-m comment --comment "ab"`},
	{"-j REJECT", "-j REJECT --reject-with icmp-port-unreachable"},
	{"-p tcp -j REJECT --reject-with tcp-reset"},
	{`-j NFLOG --nflog-group 7 --nflog-prefix x --nflog-size 128`, `-j NFLOG --nflog-prefix "x" --nflog-group 7 --nflog-size 128`},
	{"-m set --match-set mgyA4-own src,src -m mark --mark 0x1", "-m set --match-set mgyA4-own src,src -m mark --mark 1"},
	{"-m set ! --match-set mgyA4-own src,src -m mark --mark 0x1"},
	{"-m mark --mark 0x1 -m set --match-set mgyA4-own src,src"}, // in another order
	{"-m nonsense --with words", "-m  nonsense --with  words"},
	{"-m nonsense --with word"},
}

func TestRulesThatMeanTheSameHaveOneText(t *testing.T) {
	texts := map[string]string{}
	for _, same := range sameRules {
		want := Canonical(same[0])
		if first, known := texts[want]; known {
			t.Errorf("%q and %q mean different things and are both %q", first, same[0], want)
		}
		texts[want] = same[0]
		for _, text := range same[1:] {
			if got := Canonical(text); got != want {
				t.Errorf("%q is %q, and %q is %q", text, got, same[0], want)
			}
		}
		if again := Canonical(want); again != want {
			t.Errorf("the canonical text %q of %q becomes %q", want, same[0], again)
		}
	}
}

// TestTheKernelPrintsWhatWasWritten: every rule above is printed by both backends as one that means the same.
func TestTheKernelPrintsWhatWasWritten(t *testing.T) {
	testutil.Privileged(t)
	for _, backend := range []string{"legacy", "nft"} {
		testutil.RequireCommand(t, "iptables-"+backend+"-restore")
		testutil.NetNS(t).Do(t, func() {
			var want []string
			text := "*filter\n:next - [0:0]\n:all - [0:0]\n"
			for _, rule := range slices.Concat(sameRules...) {
				if strings.Contains(rule, "nonsense") || strings.Contains(rule, "icmpv6") || strings.Contains(rule, "match-set") {
					continue
				}
				want = append(want, rule)
				text += "-A all " + rule + "\n"
			}
			cmd := exec.Command("iptables-"+backend+"-restore", "-w", "--noflush")
			cmd.Stdin = strings.NewReader(text + "COMMIT\n")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s\n%s", cmd, err, out, text)
			}
			out, err := exec.Command("iptables-"+backend+"-save", "-c", "-t", "filter").Output()
			if err != nil {
				t.Fatal(err)
			}
			tables, err := Parse(string(out))
			if err != nil || len(tables) != 1 {
				t.Fatalf("%d tables, %v\n%s", len(tables), err, out)
			}
			got := tables[0].Chain("all").Rules
			if len(got) != len(want) {
				t.Fatalf("%s: %d rules, want %d", backend, len(got), len(want))
			}
			for i, rule := range got {
				if Canonical(rule.Text) != Canonical(want[i]) {
					t.Errorf("%s: %q was printed as %q, which is %q, not %q", backend, want[i], rule.Text, Canonical(rule.Text), Canonical(want[i]))
				}
			}
		})
	}
}

func TestUnknownRulesAreErrors(t *testing.T) {
	for _, rule := range []string{"-m nonsense", "--dport 80", "-p tcp --icmp-type 8", "-j", "-p tcp -m tcp --dport", "-s 10.0.0.0/33", "-s host",
		"-m mark --mark x", "-p tcp --dport 9:1", "-p tcp --dport 65536", "-j DROP -j DROP", `-m comment --comment "open`, "-p nothing", "-j DROP --reject-with x",
		"-m limit --limit 0/s", "! -j DROP", "-s 10.0.0.0/255.0.255.0", "-p tcp --tcp-flags SYN,X SYN"} {
		if r, err := ParseRule(rule); err == nil {
			t.Errorf("%q is %q", rule, r)
		}
	}
}

func FuzzRulesNeverPanicAndStayTheSame(f *testing.F) {
	for _, same := range sameRules {
		f.Add(same[0])
	}
	f.Fuzz(func(t *testing.T, text string) {
		once := Canonical(text)
		if _, err := ParseRule(text); err == nil && Canonical(once) != once {
			t.Errorf("%q is %q, and that is %q", text, once, Canonical(once))
		}
		Target(text)
	})
}

func TestQuotedWordsComeBack(t *testing.T) {
	for _, word := range []string{"", "a", "a b", `a"b`, `a\b`, `it's`, "ä", `\"`, "-j DROP"} {
		words, err := Words("-m comment --comment " + Quote(word) + " -j DROP")
		if err != nil || len(words) != 6 || words[3] != word {
			t.Errorf("%q: %q, %v", word, words, err)
		}
		if name, _ := Target("-m comment --comment " + Quote(word) + " -j ACCEPT"); name != "ACCEPT" {
			t.Errorf("%q hides the target: %q", word, name)
		}
	}
}
