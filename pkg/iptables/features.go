package iptables

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// feature is one match or target that chains use, with an example rule.
type feature struct {
	module string
	table  string
	family Family // 0: both
	rule   string // @: the name of the set
}

// ProofSet is the name of the set that rules of a proof refer to: hash:net,iface with marks, of the family.
func ProofSet(family Family) string { return fmt.Sprintf("mgy-proof%d", family) }

// proofChain has the rules of a proof. Nothing goes to it.
const proofChain = "mgy-proof"

// features are all of them. Each kernel module is named once.
var features = []feature{
	{module: "xt_conntrack", table: "mangle", rule: "-m conntrack --ctstate NEW --ctdir ORIGINAL -j RETURN"},
	{module: "xt_mark", table: "mangle", rule: "-m mark --mark 0x20000/0x20000 -j MARK --set-xmark 0x20000/0xffff0000"},
	{module: "xt_connmark", table: "mangle", rule: "-m connmark --mark 0x10000/0x10000 -j CONNMARK --set-xmark 0x10000/0x3fff0000"},
	{module: "xt_set", table: "mangle", rule: "-m set --match-set @ src,src -j SET --map-set @ src,src --map-mark"},
	{module: "xt_tcpudp", table: "mangle", rule: "-p tcp -m tcp --dport 80:90 -j RETURN"},
	{module: "xt_sctp", table: "mangle", rule: "-p sctp -m sctp --dport 80:90 -j RETURN"},
	{module: "xt_bpf", table: "mangle", rule: `-m bpf --bytecode "1,6 0 0 0" -j RETURN`},
	{module: "xt_limit", table: "mangle", rule: "-m limit --limit 10/second -j RETURN"},
	{module: "xt_NFLOG", table: "mangle", rule: "-j NFLOG --nflog-group 7"},
	{module: "xt_comment", table: "mangle", rule: "-i cali+ ! -o cali0 -p udp -m comment --comment proof -j RETURN"},
	{module: "ip6t_rt", table: "mangle", family: V6, rule: "-m rt --rt-segsleft 1:255 -j DROP"},
	{module: "iptable_raw", table: "raw", family: V4, rule: "-i cali+ -j DROP"},
	{module: "ip6table_raw", table: "raw", family: V6, rule: "-i cali+ -j DROP"},
	{module: "ipt_REJECT", table: "filter", family: V4, rule: "-p tcp -j REJECT --reject-with tcp-reset"},
	{module: "ip6t_REJECT", table: "filter", family: V6, rule: "-p tcp -j REJECT --reject-with tcp-reset"},
}

// proofOf is a transaction with the rules of features in one chain for each table. Table raw is there only with a rule: a kernel without it
// accepts the other two.
func proofOf(family Family, list []feature) string {
	var b strings.Builder
	for _, table := range []string{"raw", "mangle", "filter"} {
		var rules strings.Builder
		for _, f := range list {
			if f.table == table && (f.family == 0 || f.family == family) {
				fmt.Fprintf(&rules, "-A %s %s\n", proofChain, strings.ReplaceAll(f.rule, "@", ProofSet(family)))
			}
		}
		if table != "raw" || rules.Len() > 0 {
			fmt.Fprintf(&b, "*%s\n:%s - [0:0]\n%sCOMMIT\n", table, proofChain, rules.String())
		}
	}
	return b.String()
}

// learn looks at the rules of a proof. If another version of iptables-nft writes one in a form that is not known to be printed in full, each
// comparison would find it altered.
func (m *machine) learn(family Family) error {
	list, err := m.hidden(family, "mangle")
	if err != nil {
		return err
	}
	for _, r := range list {
		if r.chain == proofChain {
			m.unlike = r.what
		}
	}
	return nil
}

// Unlike says what these commands write in a form that is not known; empty: nothing, as far as Prove could look. Then rules of ours that
// others have altered in a way that iptables-nft does not print are not found.
func (t *Tools) Unlike() string {
	if m, real := t.kernel.(*machine); real {
		return m.unlike
	}
	return ""
}

// LacksError names the kernel modules that rules need and this kernel does not have.
type LacksError struct {
	Backend Backend
	Family  Family
	Modules []string
	Err     error // of all of them together
}

func (e *LacksError) Error() string {
	if len(e.Modules) == 0 {
		hint := ""
		if e.Backend == Legacy {
			hint = "; the backend nft may"
		}
		return fmt.Sprintf("the backend %s of iptables does not work for %v%s: %v", e.Backend, e.Family, hint, e.Err)
	}
	return fmt.Sprintf("the backend %s of iptables lacks for %v matches or targets of the kernel modules %s: load them (modprobe -a %s), or install the "+
		"package with further modules of this kernel; %v", e.Backend, e.Family, strings.Join(e.Modules, ", "), strings.Join(e.Modules, " "), e.Err)
}

// Unwrap returns the refusal of all features together.
func (e *LacksError) Unwrap() error { return e.Err }

// errUnprovable: this process may not make a network namespace, or somebody holds the lock.
var errUnprovable = errors.New("no network namespace to prove it in")

// apart runs f in a network namespace of its own, which ends with f.
func apart(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with its namespace
		if unix.Unshare(unix.CLONE_NEWNET) != nil {
			done <- errUnprovable
			return
		}
		done <- f()
	}()
	return <-done
}

// prove tries all features of a family together, and one by one if that is refused. It is called in a namespace of its own.
func (m *machine) prove(ctx context.Context, family Family) error {
	_, write := m.commands(family)
	try := func(list []feature) error {
		text := proofOf(family, list)
		_, err := m.work(ctx, write, text, "-w", "1", "--noflush")
		var exit *exited
		switch {
		case errors.As(err, &exit) && exit.status == statusLocked && strings.Contains(exit.message, "xtables lock"):
			return errUnprovable
		case errors.As(err, &exit):
			return refused(exit, text)
		}
		return err
	}
	err := try(features)
	if err == nil {
		return m.learn(family)
	}
	var refusal *RefusedError
	if !errors.As(err, &refusal) {
		return err
	}
	lacks := &LacksError{Backend: m.backend, Family: family, Err: err}
	if try(nil) != nil {
		return lacks // not even an empty chain
	}
	for i, f := range features {
		if f.family != 0 && f.family != family {
			continue
		}
		if err := try(features[i : i+1]); errors.As(err, &refusal) {
			lacks.Modules = append(lacks.Modules, f.module)
		}
	}
	slices.Sort(lacks.Modules)
	return lacks
}
