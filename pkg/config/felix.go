package config

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Fields of a FelixConfiguration that are named more than once.
const (
	fieldVXLANAllowed = "allowVXLANPacketsFromWorkloads"
	fieldIPIPAllowed  = "allowIPIPPacketsFromWorkloads"
	fieldTimeouts     = "bpfConntrackTimeouts"
)

// felixValues are the fields that are in force at one of the datastore's layers: the layer's own and, as Felix merges
// them, those of the layers below that it does not set. An empty value is the same as none.
type felixValues map[string]string

// felixText is a setting's value as a FelixConfiguration has it.
type felixText struct {
	text string // empty: it says nothing about the setting
	note string // what of the field does not count here; empty: nothing
}

// felixAsIs takes a field whose text is the setting's.
func felixAsIs(field string) func(felixValues) (felixText, error) {
	return func(f felixValues) (felixText, error) { return felixText{text: f[field]}, nil }
}

// felixWord takes a field that is one of a few words in any case; words has the setting's by theirs in lower case.
func felixWord(field string, words map[string]string, wanted string) func(felixValues) (felixText, error) {
	return func(f felixValues) (felixText, error) {
		if f[field] == "" {
			return felixText{}, nil
		}
		word, ok := words[strings.ToLower(f[field])]
		if !ok {
			return felixText{}, errors.New("want " + wanted)
		}
		return felixText{text: word}, nil
	}
}

// felixPrefix takes the first of a list.
func felixPrefix(f felixValues) (felixText, error) {
	first, rest, more := strings.Cut(f["interfacePrefix"], ",")
	v := felixText{text: strings.TrimSpace(first)}
	if more {
		v.note = fmt.Sprintf("only one prefix is supported: %q is used, %q is not", v.text, rest)
	}
	return v, nil
}

// felixEncap takes two fields into one setting, which must agree: Felix has a default of false for both.
func felixEncap(f felixValues) (felixText, error) {
	var allowed [2]bool
	for i, field := range []string{fieldVXLANAllowed, fieldIPIPAllowed} {
		if f[field] == "" {
			continue
		}
		var err error
		if allowed[i], err = parseBool(f[field]); err != nil {
			return felixText{}, err
		}
	}
	if allowed[0] != allowed[1] {
		return felixText{}, fmt.Errorf("%s and %s must be the same: there is one setting for both", fieldVXLANAllowed, fieldIPIPAllowed)
	}
	return felixText{text: fmt.Sprint(allowed[0])}, nil
}

// felixStatusDir is where Felix keeps the files below its prefix.
func felixStatusDir(f felixValues) (felixText, error) {
	prefix := f["endpointStatusPathPrefix"]
	if prefix == "" {
		return felixText{}, nil
	}
	if !path.IsAbs(prefix) {
		return felixText{}, errors.New("want a path that begins with /")
	}
	return felixText{text: path.Join(prefix, "endpoint-status")}, nil
}

// timeoutKeys are those of bpfConntrackTimeouts. creationGracePeriod and tcpResetSeen have no setting of their own.
var timeoutKeys = []string{"creationGracePeriod", "tcpSynSent", "tcpEstablished", "tcpFinsSeen", "tcpResetSeen",
	"udpTimeout", "genericTimeout", "icmpTimeout"}

// felixTimeout takes one key of the map of timeouts. "Auto" asks for the kernel's own, and says nothing here.
func felixTimeout(key string) func(felixValues) (felixText, error) {
	return func(f felixValues) (v felixText, err error) {
		for part := range strings.SplitSeq(f[fieldTimeouts], ",") {
			if part == "" {
				continue
			}
			k, text, _ := strings.Cut(part, "=")
			switch {
			case !slices.Contains(timeoutKeys, k):
				v.note = fmt.Sprintf("%q is not a timeout; want %s", k, strings.Join(timeoutKeys, ", "))
			case k == key && text != "Auto":
				v.text = text
			}
		}
		return v, nil
	}
}

// unsupported are Felix fields for features that Margay lacks, with the values that turn the feature off. Any other value
// is reported, because its author relies on the feature.
var unsupported = map[string]struct {
	fine []string
	why  string
}{
	"iptablesFilterDenyAction": {[]string{"Drop"}, "not supported: packets that policy denies are dropped without an answer"},
	"nftablesFilterDenyAction": {[]string{"Drop"}, "not supported: packets that policy denies are dropped without an answer"},
}

// asksForMore says why the value of a field is not supported; empty: it is, or the field is not set.
func asksForMore(field, value string) string {
	u, ok := unsupported[field]
	if !ok || value == "" || slices.ContainsFunc(u.fine, func(v string) bool { return strings.EqualFold(v, value) }) {
		return ""
	}
	return u.why
}
