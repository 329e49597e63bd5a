package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/margay-project/margay/pkg/config"
)

// marks are the bits of --mark-mask that an agent uses.
func marks(text string) (uint32, error) {
	mask, err := config.ParseMarkMask(text)
	if err != nil {
		return 0, fmt.Errorf("--mark-mask %q: %w", text, err)
	}
	seen, judge, own := config.Config{MarkMask: mask}.Marks()
	return seen | judge | own, nil
}

// markCheck looks for others that use our mark bits: routing rules and iptables rules of this network namespace.
func markCheck(ctx context.Context, ours uint32) nodeCheck {
	check := nodeCheck{Name: fmt.Sprintf("mark bits %#08x", ours), OK: true, Detail: "nobody else uses them"}
	var users []string
	rules, err := netlink.RuleList(netlink.FAMILY_ALL)
	for _, r := range rules {
		if (r.Mark != 0 || r.Mask != nil) && maskOf(r)&ours != 0 {
			users = append(users, fmt.Sprintf("ip rule %d: fwmark %#x/%#x", r.Priority, r.Mark, maskOf(r)))
		}
	}
	for _, command := range []string{"iptables-save", "ip6tables-save"} {
		dump, dumpErr := iptablesRules(ctx, command)
		err = errors.Join(err, dumpErr)
		for _, line := range markUsers(dump, ours) {
			users = append(users, command+": "+line)
		}
	}
	switch {
	case len(users) > 0:
		check.OK = false
		check.Detail = "used by " + users[0]
		if len(users) > 1 {
			check.Detail += fmt.Sprintf(" and %d more", len(users)-1)
		}
		check.Detail += "; choose others with --mark-mask"
	case err != nil:
		check.Detail = "not all could be looked at: " + err.Error()
	}
	return check
}

func maskOf(r netlink.Rule) uint32 {
	if r.Mask == nil {
		return 0xffffffff
	}
	return *r.Mask
}

// iptablesRules is what the command prints; nothing if it is not installed.
func iptablesRules(ctx context.Context, command string) (string, error) {
	path, err := exec.LookPath(command)
	if err != nil {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path).Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", command, err)
	}
	return string(out), nil
}

// markUsers are the rules of an iptables-save that set or match bits of ours.
func markUsers(dump string, ours uint32) []string {
	var users []string
	for line := range strings.Lines(dump) {
		fields := strings.Fields(line)
		for i, f := range fields[:max(0, len(fields)-1)] {
			switch f {
			case "--set-xmark", "--set-mark", "--mark", "--or-mark", "--and-mark":
			default:
				continue
			}
			value, mask, hasMask := strings.Cut(fields[i+1], "/")
			if !hasMask {
				mask = "0xffffffff"
			}
			v, errV := strconv.ParseUint(value, 0, 32)
			m, errM := strconv.ParseUint(mask, 0, 32)
			if errV == nil && errM == nil && uint32(v|m)&ours != 0 {
				users = append(users, strings.TrimSpace(line))
				break
			}
		}
	}
	return users
}
