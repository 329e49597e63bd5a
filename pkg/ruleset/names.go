package ruleset

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// list is an option whose value is words separated by commas, in any order.
func list(name string) optionKind {
	return one(name, func(text string) (string, error) {
		words := strings.Split(strings.ToUpper(text), ",")
		slices.Sort(words)
		return strings.Join(slices.Compact(words), ","), nil
	})
}

// setAndPlaces is an option with the name of a set and the parts of the packet that are looked up in it.
func setAndPlaces(name string) optionKind {
	return optionKind{2, func(words []string, negated bool) (Option, error) {
		return Option{name, negated, []string{words[0], words[1]}}, nil
	}}
}

// tcpFlags reads --tcp-flags MASK FLAGS, and --syn, which is short for one of them.
func tcpFlags(count int) optionKind {
	return optionKind{count, func(words []string, negated bool) (Option, error) {
		if count == 0 {
			words = []string{"SYN,RST,ACK,FIN", "SYN"}
		}
		values := make([]string, 2)
		for i, text := range words {
			flags, err := flagList(text)
			if err != nil {
				return Option{}, err
			}
			values[i] = flags
		}
		return Option{"--tcp-flags", negated, values}, nil
	}}
}

var flagNames = []string{"ACK", "FIN", "PSH", "RST", "SYN", "URG"}

func flagList(text string) (string, error) {
	text = strings.ToUpper(text)
	switch text {
	case "NONE":
		return text, nil
	case "ALL":
		return strings.Join(flagNames, ","), nil
	}
	flags := strings.Split(text, ",")
	slices.Sort(flags)
	for _, f := range flags {
		if !slices.Contains(flagNames, f) {
			return "", fmt.Errorf("unknown flag %q", f)
		}
	}
	return strings.Join(slices.Compact(flags), ","), nil
}

// icmpType reads a type, or a type and a code, as numbers.
func icmpType(name string) optionKind {
	return one(name, func(text string) (string, error) {
		if text == "any" {
			return text, nil
		}
		kind, code, both := strings.Cut(text, "/")
		k, err := number64(kind, 0, 255, false)
		if err != nil || !both {
			return strconv.FormatUint(k, 10), err
		}
		c, err := number64(code, 0, 255, false)
		return fmt.Sprintf("%d/%d", k, c), err
	})
}

// rateUnits are the periods of a limit in the kernel's unit, 1/10000 seconds, from the longest on.
var rateUnits = []struct {
	name   string
	period uint64
}{{"day", 86400 * 10_000}, {"hour", 3600 * 10_000}, {"min", 60 * 10_000}, {"sec", 10_000}}

// rate reads "10/minute". The kernel keeps the rounded cost of one packet in credits, and iptables-save prints it in the shortest
// period in which it is a whole number.
func rate(name string) optionKind {
	return one(name, func(text string) (string, error) {
		count, unit, given := strings.Cut(text, "/")
		n, err := number64(count, 0, 1<<32-1, false)
		if !given {
			unit = "sec"
		}
		for _, u := range rateUnits {
			if err != nil || unit == "" || u.name[0] != unit[0] || n == 0 || n > u.period {
				continue
			}
			return printedRate(u.period / n), nil
		}
		return "", errors.Join(err, fmt.Errorf("%q is not a rate", text))
	})
}

func printedRate(cost uint64) string {
	best := rateUnits[0]
	for _, u := range rateUnits[1:] {
		if cost > u.period || u.period/cost < u.period%cost {
			break
		}
		best = u
	}
	return fmt.Sprintf("%d/%s", best.period/cost, best.name)
}

// rejection reads the answer of REJECT, and leaves out the default.
func rejection(name string) optionKind {
	return one(name, func(text string) (string, error) {
		switch text {
		case "icmp-port-unreachable", "icmp6-port-unreachable", "port-unreach":
			return "", nil
		case "tcp-rst":
			return "tcp-reset", nil
		}
		return text, nil
	})
}

func protocolOption(name string) optionKind {
	return one(name, func(text string) (string, error) {
		text = strings.ToLower(text)
		if n, err := strconv.ParseUint(text, 0, 16); err == nil {
			if n == 0 {
				return "", nil
			}
			return strconv.FormatUint(n, 10), nil
		}
		n, known := protocolNumbers[text]
		switch {
		case text == "all":
			return "", nil
		case !known:
			return "", fmt.Errorf("unknown protocol %q", text)
		}
		return strconv.Itoa(n), nil
	})
}
