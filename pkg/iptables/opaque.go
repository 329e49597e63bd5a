package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/nfnl"
	"github.com/margay-project/margay/pkg/ruleset"
)

// A built-in chain that iptables-nft cannot print is read from nftables itself: the chain that each rule goes to, in order. That is all
// that an agent needs of the rules of others there. Of its own jumps it needs the text, too, because iptables-restore deletes a rule by
// its text. The agent knows how it writes them, and asks iptables whether the chain has such a rule (iptables -C).

// opaque stands for a rule that could not be printed and that goes to no chain of an agent; matches, for the matches of one that does.
const (
	opaque  = `-m comment --comment "iptables cannot print this rule"`
	matches = `-m comment --comment "iptables cannot print the matches of this rule"`
)

// opaqueChain is a built-in chain in the form of iptables -S.
func opaqueChain(family Family, table string, chain nftChain) (string, error) {
	targets, err := targetsOf(family, table, chain.name)
	if err != nil {
		return "", err
	}
	text := "-P " + chain.name + " " + chain.policy + "\n"
	for _, target := range targets {
		rule := opaque
		if strings.HasPrefix(target, ownChains) {
			rule = matches + " -j " + target
		}
		text += "-A " + chain.name + " " + rule + "\n"
	}
	return text, nil
}

// targetsOf returns the chain that each rule of a chain of nftables goes to; empty: it goes to none.
func targetsOf(family Family, table, chain string) (targets []string, err error) {
	err = rulesOf(family, table, chain, func() { targets = nil }, func(rule []byte) {
		targets = append(targets, targetOf(nfnl.Find(rule, unix.NFTA_RULE_EXPRESSIONS)))
	})
	return targets, err
}

// rulesOf passes the attributes of each rule of a chain of nftables to each. It calls again before it repeats the reading.
func rulesOf(family Family, table, chain string, again func(), each func(rule []byte)) error {
	var request nfnl.Encoder
	request.String(unix.NFTA_RULE_TABLE, table)
	request.String(unix.NFTA_RULE_CHAIN, chain)
	err := dump(family, unix.NFT_MSG_GETRULE, request.Bytes(), again, func(rule []byte) {
		if nfnl.String(nfnl.Find(rule, unix.NFTA_RULE_TABLE)) == table && nfnl.String(nfnl.Find(rule, unix.NFTA_RULE_CHAIN)) == chain {
			each(rule)
		}
	})
	if err != nil {
		return fmt.Errorf("list the rules of chain %s of %v table %s: %w", chain, family, table, err)
	}
	return nil
}

// targetOf returns the chain that a rule with these expressions goes to.
func targetOf(expressions []byte) string {
	for _, expression := range nfnl.Attributes(expressions) {
		if nfnl.String(nfnl.Find(expression, unix.NFTA_EXPR_NAME)) != "immediate" {
			continue
		}
		verdict := nfnl.Find(expression, unix.NFTA_EXPR_DATA, unix.NFTA_IMMEDIATE_DATA, unix.NFTA_DATA_VERDICT)
		if to := nfnl.Find(verdict, unix.NFTA_VERDICT_CHAIN); to != nil {
			return nfnl.String(to)
		}
	}
	return ""
}

// dump asks nftables for all objects of a kind. Changes by others interrupt it; then it calls again and repeats the request.
func dump(family Family, command uint8, attributes []byte, again func(), each func(attributes []byte)) (err error) {
	conn, err := nfnl.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	request := nfnl.Request{Subsystem: unix.NFNL_SUBSYS_NFTABLES, Command: command, Family: unix.NFPROTO_IPV4, Attributes: attributes}
	if family == V6 {
		request.Family = unix.NFPROTO_IPV6
	}
	const patience = 5
	for range patience {
		again()
		err = conn.Dump(request, func(m nfnl.Message) {
			if m.Family == request.Family {
				each(m.Attributes)
			}
		})
		if !errors.Is(err, nfnl.ErrInterrupted) {
			break
		}
	}
	return err
}

// has implements kernel.
func (m *machine) has(ctx context.Context, family Family, table, chain, rule string) (bool, error) {
	list, err := m.list(ctx, family)
	if err != nil {
		return false, err
	}
	words, err := ruleset.Words(rule)
	if err != nil {
		return false, err
	}
	_, err = m.work(ctx, list, "", append([]string{"-t", table, "-C", chain}, words...)...)
	var exit *exited
	if errors.As(err, &exit) {
		return false, nil
	}
	return err == nil, err
}

// recall gives jumps whose matches could not be printed their texts. desired are the jumps of each built-in chain; a chain without any
// keeps such jumps as they are, since nothing is to be written there. Those of another world differ by its name only.
func recall(ctx context.Context, t *Table, saved *ruleset.Saved, desired map[string][]string) error {
	for i := range saved.Chains {
		chain := &saved.Chains[i]
		known, ok := desired[chain.Name]
		if !ok || !chain.BuiltIn() {
			continue
		}
		for j := range chain.Rules {
			rule := &chain.Rules[j]
			if target, _ := ruleset.Target(rule.Text); !strings.HasPrefix(rule.Text, matches) || !t.owns(target) {
				continue
			}
			text, err := recalled(ctx, t, chain, rule.Text, known)
			if err != nil {
				return err
			}
			rule.Text = text
		}
	}
	return nil
}

// recalled returns the text of one of the jumps of a chain, or unknown if iptables does not confirm one that this agent would write: the
// rule that it cannot print stands before it, it is there twice, or an agent of another version or with other settings has written it.
func recalled(ctx context.Context, t *Table, chain *ruleset.SavedChain, unknown string, desired []string) (string, error) {
	target, _ := ruleset.Target(unknown)
	same := func(r ruleset.SavedRule) bool { return r.Text == unknown }
	again := slices.ContainsFunc(chain.Rules[1+slices.IndexFunc(chain.Rules, same):], same) // -C cannot distinguish the two
	for _, text := range desired {
		to, _ := ruleset.Target(text)
		guess := strings.ReplaceAll(text, ruleset.World(to), ruleset.World(target))
		if goal, _ := ruleset.Target(guess); goal != target || again {
			continue
		}
		if there, err := t.kernel.has(ctx, t.family, t.name, chain.Name, guess); there || err != nil {
			return guess, err
		}
	}
	return unknown, nil
}
