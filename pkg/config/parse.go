package config

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/margay-project/margay/pkg/dataplane"
)

// oneWord returns the word that text is, whatever its case.
func oneWord(text string, words ...string) (string, error) {
	for _, w := range words {
		if strings.EqualFold(text, w) {
			return w, nil
		}
	}
	last := len(words) - 1
	return "", fmt.Errorf("want %s or %s", strings.Join(words[:last], ", "), words[last])
}

// dataplanes are those that there are.
var dataplanes = []string{"auto", "bpf", "iptables", "record"}

// ParseDataplane is the value of the setting dataplane.
func ParseDataplane(text string) (string, error) { return oneWord(text, dataplanes...) }

func parseBool(text string) (bool, error) {
	v, err := strconv.ParseBool(text)
	if err != nil {
		return false, errors.New("want true or false")
	}
	return v, nil
}

func parseDuration(text string, least time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errors.New("want a duration such as 90s, 10m or 1h")
	}
	if d < least {
		return 0, fmt.Errorf("want a duration of at least %s", printDuration(least))
	}
	return d, nil
}

// printDuration leaves out the zeros at the end: 1h, not 1h0m0s.
func printDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func parseCount(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, errors.New("want a number from 0 to 4294967295")
	}
	return uint32(n), nil
}

func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, errors.New("want a port, 0 to 65535")
	}
	return uint16(n), nil
}

// parsePorts reads ports joined by commas, or off.
func parsePorts(text string) ([]uint16, error) {
	if text, _ = parseOff(text); text == "" {
		return nil, nil
	}
	var ports []uint16
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(part), 10, 16)
		if err != nil || n == 0 {
			return nil, errors.New("want ports separated by commas, as in 6081,8472, or off")
		}
		ports = append(ports, uint16(n))
	}
	slices.Sort(ports)
	if ports = slices.Compact(ports); len(ports) > dataplane.MaxTunnelPorts {
		return nil, fmt.Errorf("want at most %d ports", dataplane.MaxTunnelPorts)
	}
	return ports, nil
}

func printPorts(ports []uint16) string {
	var parts []string
	for _, p := range ports {
		parts = append(parts, strconv.Itoa(int(p)))
	}
	return printOff(strings.Join(parts, ","))
}

// maxPrefix is the room the programs have for it.
const maxPrefix = 8

func parsePrefix(text string) (string, error) {
	if text == "" || len(text) > maxPrefix {
		return "", fmt.Errorf("want 1 to %d characters", maxPrefix)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r == '/' || unicode.IsSpace(r) }) {
		return "", errors.New("no name of an interface has a slash or white space")
	}
	return text, nil
}

var instances = regexp.MustCompile(instancePattern)

// ParseInstance reads the name of an agent. It becomes the name of a directory of the BPF file system, which takes none with a dot, and of
// one with a socket, whose path must not be long.
func ParseInstance(text string) (string, error) {
	if !instances.MatchString(text) {
		return "", errors.New("want at most 64 letters, digits, - and _")
	}
	return text, nil
}

// longestSocket is the room that the kernel has for the path of a unix socket, which ends with a zero byte.
// Source: unix(7).
const longestSocket = 107

// ParseSocket reads the path of a socket. Of a longer one the kernel says only that it is invalid, when it is used.
func ParseSocket(text string) (string, error) {
	if len(text) > longestSocket {
		return "", fmt.Errorf("want a path of at most %d characters, this one has %d", longestSocket, len(text))
	}
	return text, nil
}

// kubeProxyMarks are the bits kube-proxy sets.
const kubeProxyMarks = 0xc000

// ParseMarkMask reads a mark-mask; the error describes a valid value.
func ParseMarkMask(text string) (uint32, error) {
	mask, err := strconv.ParseUint(text, 0, 32)
	if err != nil {
		return 0, errors.New("want a number such as 0x00001c00")
	}
	if mask&kubeProxyMarks != 0 {
		return 0, errors.New("0x4000 and 0x8000 are kube-proxy's")
	}
	if _, n := dataplane.LowestBits(uint32(mask)); n < 3 {
		return 0, errors.New("three bits are needed")
	}
	return uint32(mask), nil
}

func printMarkMask(mask uint32) string { return fmt.Sprintf("%#08x", mask) }

// fewestIPTablesBits are the bits that the iptables dataplane needs: a number of 9 bits and three flags.
const fewestIPTablesBits = 12

// ParseIptablesMarkMask is ParseMarkMask for an iptables-mark-mask.
func ParseIptablesMarkMask(text string) (uint32, error) {
	mask, err := strconv.ParseUint(text, 0, 32)
	if err != nil {
		return 0, errors.New("want a number such as 0xffff0000")
	}
	if mask&kubeProxyMarks != 0 {
		return 0, errors.New("0x4000 and 0x8000 are kube-proxy's")
	}
	shift := bits.TrailingZeros32(uint32(mask))
	if n := bits.OnesCount32(uint32(mask)); n < fewestIPTablesBits || bits.Len32(uint32(mask))-shift != n {
		return 0, fmt.Errorf("%d bits next to each other are needed", fewestIPTablesBits)
	}
	return uint32(mask), nil
}

// parseMasqueradeMark reads the one bit of a mark, or 0.
func parseMasqueradeMark(text string) (uint32, error) {
	mark, err := strconv.ParseUint(text, 0, 32)
	if err != nil || bits.OnesCount64(mark) > 1 {
		return 0, errors.New("want a number of one bit such as 0x00004000, or 0")
	}
	return uint32(mark), nil
}

// parseMapSizes reads NAME=ENTRIES joined by commas.
func parseMapSizes(text string) (map[string]uint32, error) {
	sizes := map[string]uint32{}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, size, _ := strings.Cut(part, "=")
		n, err := strconv.ParseUint(size, 10, 32)
		if err != nil || n == 0 || name == "" {
			return nil, errors.New("want NAME=ENTRIES, as in ct4=1000000")
		}
		sizes[name] = uint32(n)
	}
	return sizes, nil
}

func printMapSizes(sizes map[string]uint32) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		parts = append(parts, fmt.Sprintf("%s=%d", name, sizes[name]))
	}
	return strings.Join(parts, ",")
}

// off is how a value that may be empty is printed if it is, so that it can be given in every layer.
const off = "off"

func parseOff(text string) (string, error) {
	if strings.EqualFold(text, off) {
		return "", nil
	}
	return text, nil
}

// parseStatusDir takes an absolute path: the CNI plugin that reads the files has another working directory.
func parseStatusDir(text string) (string, error) {
	if text, _ = parseOff(text); text != "" && !path.IsAbs(text) {
		return "", errors.New("want a path that begins with /, or off")
	}
	return text, nil
}

func printOff(text string) string {
	if text == "" {
		return off
	}
	return text
}

// parseAddress takes what health.Address does, but for a port alone: a mistake is to be found before the agent uses the address, so that the
// last valid value stays in force.
func parseAddress(text string) (string, error) {
	if text, _ = parseOff(text); text == "" {
		return "", nil
	}
	wanted := errors.New("want HOST:PORT, as in 127.0.0.1:9096 or [::1]:9096, or off")
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return "", wanted
	}
	host, port := text[:i], text[i+1:]
	if inside, ok := strings.CutPrefix(host, "["); ok && strings.HasSuffix(inside, "]") {
		host = strings.TrimSuffix(inside, "]")
	} else if strings.Contains(host, ":") {
		return "", wanted
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("port %q is not a number from 1 to 65535: %w", port, wanted)
	}
	if addr, err := netip.ParseAddr(host); host != "" && host != "localhost" && (err != nil || addr.Zone() != "") {
		return "", fmt.Errorf("host %q is no IP address (0.0.0.0 means all interfaces): %w", host, wanted)
	}
	return text, nil
}
