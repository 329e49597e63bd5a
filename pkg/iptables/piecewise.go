package iptables

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/nfnl"
)

// Readable reads the tables of these names, of both families, and writes nothing. The error names each that cannot be read, and why.
func (t *Tools) Readable(ctx context.Context, tables ...string) error {
	var errs []error
	for _, family := range Families {
		for _, name := range tables {
			_, err := t.Table(family, name, ownChains).Read(ctx)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// whole reports whether iptables-nft-save has printed the table. Beside a rule that it does not know it fails, or prints a comment
// alone, with status 0, as if the table had no chain.
func whole(output string, err error) bool {
	return err == nil && !strings.Contains(output, "is incompatible, use 'nft' tool")
}

// unprintable stands for the rules of a chain that could not be printed. No chain of ours has this rule, so one that has it is repaired.
const unprintable = `-m comment --comment "iptables cannot print the rules of this chain"`

// savePieces prints a table of nftables like iptables-nft-save, but one chain after the other: a rule that iptables does not know costs
// its own chain only. Of a built-in chain that cannot be printed, only the chains that its rules go to are known. Chains of others that cannot be printed are left out: rules
// that go to them are there, so a walk that reaches one of them ends with an error.
func (m *machine) savePieces(ctx context.Context, family Family, table string, counters bool) (string, error) {
	list, err := m.list(ctx, family)
	if err != nil {
		return "", err
	}
	chains, err := chainsOf(family, table)
	if err != nil {
		return "", err
	}
	args := []string{"-t", table, "-S"}
	if counters {
		args = []string{"-t", table, "-v", "-S"}
	}
	var heads, rules strings.Builder
	for _, chain := range chains {
		name := chain.name
		output, err := m.work(ctx, list, "", append(args, name)...)
		var exit *exited
		switch {
		case err != nil && !errors.As(err, &exit):
			return "", err
		case err != nil && slices.Contains(builtIn, name):
			if output, err = opaqueChain(family, table, chain); err != nil {
				return "", err
			}
		case err != nil && !strings.HasPrefix(name, ownChains):
			continue
		case err != nil:
			output = "-N " + name + "\n-A " + name + " " + unprintable + "\n"
		}
		for line := range strings.Lines(output) {
			savedLine(&heads, &rules, strings.TrimSpace(line))
		}
	}
	return "*" + table + "\n" + heads.String() + rules.String() + "COMMIT\n", nil
}

// builtIn are the chains of iptables' tables that packets enter.
var builtIn = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// ownChains begins the names of all chains of agents.
const ownChains = "mgy"

// counted finds the counters of a rule that iptables -v -S prints before its target.
var counted = regexp.MustCompile(`^(.*) -c (\d+) (\d+)((?: -[jg] .*)?)$`)

// savedLine adds a line of iptables -S in the form of iptables-save: the head of a chain, or a rule.
func savedLine(heads, rules *strings.Builder, line string) {
	counter := ""
	if found := counted.FindStringSubmatch(line); found != nil {
		line, counter = found[1]+found[4], fmt.Sprintf("[%s:%s]", found[2], found[3])
	}
	fields := strings.Fields(line)
	switch {
	case len(fields) == 3 && fields[0] == "-P":
		if counter == "" {
			counter = "[0:0]"
		}
		fmt.Fprintf(heads, ":%s %s %s\n", fields[1], fields[2], counter)
	case len(fields) == 2 && fields[0] == "-N":
		fmt.Fprintf(heads, ":%s - [0:0]\n", fields[1])
	case len(fields) > 0:
		if counter != "" {
			rules.WriteString(counter + " ")
		}
		rules.WriteString(line + "\n")
	}
}

// list returns the command that prints one chain. It is that of which save is another name.
func (m *machine) list(ctx context.Context, family Family) (command, error) {
	name := map[Family]string{V4: "iptables", V6: "ip6tables"}[family]
	ctx, cancel := patient(ctx)
	defer cancel()
	list, _, err := findCommand(ctx, m.backend, name)
	if err != nil {
		return command{}, fmt.Errorf("another program has added a rule that iptables-nft-save cannot print: %w", err)
	}
	return list, nil
}

// nftChain is a chain of nftables. A chain that packets enter has a policy.
type nftChain struct {
	name, policy string
	hook         hook
}

// chainsOf returns a table's chains in nftables.
func chainsOf(family Family, table string) (chains []nftChain, err error) {
	err = dump(family, unix.NFT_MSG_GETCHAIN, nil, func() { chains = nil }, func(chain []byte) {
		if nfnl.String(nfnl.Find(chain, unix.NFTA_CHAIN_TABLE)) != table {
			return
		}
		policy := "ACCEPT"
		if p := nfnl.Find(chain, unix.NFTA_CHAIN_POLICY); p != nil && nfnl.Uint32(p) == 0 { // NF_DROP
			policy = "DROP"
		}
		chains = append(chains, nftChain{nfnl.String(nfnl.Find(chain, unix.NFTA_CHAIN_NAME)), policy, hookIn(chain)})
	})
	if err != nil {
		return nil, fmt.Errorf("list the chains of %v table %s: %w", family, table, err)
	}
	return chains, nil
}
