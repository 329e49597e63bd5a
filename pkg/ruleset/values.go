package ruleset

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// The canonical forms of values:
//
//   - an address: a prefix, with no bits set after its length; the prefix of all addresses is left out
//   - a protocol: its number; ports, an interval: "low:high", both decimal; all ports are left out
//   - a mark: "0xvalue/0xmask"; flags of TCP and states: sorted, separated by commas
//   - a limit: as iptables-save prints it after the kernel has rounded it

// one makes an option of one word. norm returns the empty string for a value that matches everything.
func one(name string, norm func(string) (string, error)) optionKind {
	return optionKind{1, func(words []string, negated bool) (Option, error) {
		value, err := norm(words[0])
		switch {
		case err != nil:
			return Option{}, err
		case value == "" && negated:
			return Option{}, fmt.Errorf("! %s matches nothing", words[0])
		case value == "":
			return Option{}, nil
		}
		return Option{name, negated, []string{value}}, nil
	}}
}

// word is an option whose value is kept as it is.
func word(name string) optionKind {
	return optionKind{1, func(words []string, negated bool) (Option, error) {
		return Option{name, negated, []string{words[0]}}, nil
	}}
}

// flag is an option without a value.
func flag(name string) optionKind {
	return optionKind{0, func(_ []string, negated bool) (Option, error) { return Option{Name: name, Negated: negated}, nil }}
}

func addressed(name string) optionKind { return one(name, address) }

func address(text string) (string, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(addr, addr.BitLen()).String(), nil
	}
	host, length, _ := strings.Cut(text, "/")
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return "", fmt.Errorf("%q is not an address or a prefix", text)
	}
	bits, err := strconv.Atoi(length)
	if err != nil {
		if bits, err = maskBits(length); err != nil {
			return "", err
		}
	}
	prefix, err := addr.Prefix(bits)
	if err != nil || prefix.Bits() == 0 {
		return "", err
	}
	return prefix.String(), nil
}

// maskBits is the length of a netmask such as 255.255.0.0.
func maskBits(text string) (int, error) {
	mask, err := netip.ParseAddr(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not the length of a prefix or a netmask", text)
	}
	for bits := range mask.BitLen() + 1 {
		all := netip.MustParseAddr("255.255.255.255")
		if mask.Is6() {
			all = netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
		}
		if p, err := all.Prefix(bits); err == nil && p.Addr() == mask {
			return bits, nil
		}
	}
	return 0, fmt.Errorf("netmask %s has gaps", text)
}

// ports reads an interval. The negation of an interval that begins at 0 or ends at 65535 is an interval, too, and the nft backend
// prints it so.
func ports(name string) optionKind {
	return optionKind{1, func(words []string, negated bool) (Option, error) {
		low, high, err := span(words[0], 0xffff)
		switch {
		case err != nil:
			return Option{}, err
		case negated && low == 0 && high == 0xffff:
			return Option{}, fmt.Errorf("! %s matches nothing", words[0])
		case negated && low == 0:
			low, high, negated = high+1, 0xffff, false
		case negated && high == 0xffff:
			low, high, negated = 0, low-1, false
		case low == 0 && high == 0xffff:
			return Option{}, nil
		}
		return Option{name, negated, []string{fmt.Sprintf("%d:%d", low, high)}}, nil
	}}
}

func interval(name string) optionKind {
	return one(name, func(text string) (string, error) {
		low, high, err := span(text, 1<<32-1)
		return fmt.Sprintf("%d:%d", low, high), err
	})
}

// span reads "5", "5:9", ":9" or "5:".
func span(text string, highest uint64) (from, to uint64, err error) {
	low, high, both := strings.Cut(text, ":")
	if from, err = number64(low, 0, highest, both); err != nil {
		return 0, 0, err
	}
	to = from
	if both {
		to, err = number64(high, highest, highest, true)
	}
	if err == nil && from > to {
		err = fmt.Errorf("%q has no numbers", text)
	}
	return from, to, err
}

// number64 reads a number up to highest. optional: the number may be missing, and absent is the result.
func number64(text string, absent, highest uint64, optional bool) (uint64, error) {
	if text == "" && optional {
		return absent, nil
	}
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil || n > highest {
		return 0, fmt.Errorf("%q is not a number up to %d", text, highest)
	}
	return n, nil
}

func portList(name string) optionKind {
	return one(name, func(text string) (string, error) {
		parts := strings.Split(text, ",")
		for i, part := range parts {
			low, high, err := span(part, 0xffff)
			if err != nil {
				return "", err
			}
			parts[i] = fmt.Sprintf("%d:%d", low, high)
		}
		return strings.Join(parts, ","), nil
	})
}

func number(name string) optionKind { return numberUnless(name, "") }

// numberUnless reads a number and leaves out an option with its default value, otherwise.
func numberUnless(name, otherwise string) optionKind {
	return one(name, func(text string) (string, error) {
		n, err := number64(text, 0, 1<<32-1, false)
		if err != nil || strconv.FormatUint(n, 10) == otherwise {
			return "", err
		}
		return strconv.FormatUint(n, 10), nil
	})
}

func masked(name string) optionKind {
	return one(name, func(text string) (string, error) {
		value, mask, err := markAndMask(text)
		return fmt.Sprintf("%#x/%#x", value, mask), err
	})
}

// newMark reads an option of MARK or CONNMARK that changes the mark, as the --set-xmark with the same effect.
func newMark(meaning func(value, mask uint32) (uint32, uint32)) optionKind {
	return one("--set-xmark", func(text string) (string, error) {
		value, mask, err := markAndMask(text)
		value, mask = meaning(value, mask)
		return fmt.Sprintf("%#x/%#x", value, mask), err
	})
}

func markAndMask(text string) (value, mask uint32, err error) {
	first, second, both := strings.Cut(text, "/")
	v, err := number64(first, 0, 1<<32-1, false)
	m := uint64(1<<32 - 1)
	if err == nil && both {
		m, err = number64(second, 0, 1<<32-1, false)
	}
	return uint32(v), uint32(m), err
}
