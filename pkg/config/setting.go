package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// EnvironmentPrefix starts the environment variable of every setting: log-level is MARGAY_LOG_LEVEL.
const EnvironmentPrefix = "MARGAY_"

// Group is what settings are about, as people read it.
type Group string

// The groups.
const (
	GroupObjects     Group = "Objects"
	GroupAgent       Group = "Which agent"
	GroupEnforcement Group = "Enforcement"
	GroupLimits      Group = "Limits and timeouts"
	GroupReporting   Group = "Reporting"
)

// Setting is one value that configures an agent.
type Setting struct {
	Name   string // as the flag has it: log-level
	Usage  string // one line
	Group  Group
	Effect Effect // of a changed value
	// Felix are the fields of a FelixConfiguration that set it; nil: never from the datastore.
	Felix []string
	// Type is the type of a value, in one word: text, number, duration, bool. A flag of a bool without a value is true.
	Type string
	// Repeatable: a flag may be given several times, its values add up.
	Repeatable bool
	// NotInFile: only the environment and a flag set it.
	NotInFile bool
	// Others are variables of other programs that set it, too, the first that has a value. In any case.
	Others []string
	// Words are all values of a setting that takes one of a few words; nil: it takes others.
	Words []string
	// Pattern is a regular expression that every valid value matches, so that mistakes can be found without an agent;
	// what matches may still be refused. Empty: any text matches.
	Pattern string
	// Max is the largest value of a number, 0 for other types.
	Max uint64

	conversions
}

// conversions are how a setting's value is read.
type conversions struct {
	parse func(text string) (parsed, error) // its errors describe a valid value
	of    func(c *Config) parsed            // as c has it
	felix func(f felixValues) (felixText, error)
}

// parsed is a valid value of a setting. It keeps its type: text is for people.
type parsed struct {
	text string // canonical: it parses to the same value
	set  func(c *Config)
	same func(c *Config) bool // whether c has this value
}

// Settings are all of them in the order of their names. They are the caller's.
func Settings() []Setting {
	all := make([]Setting, 0, len(settings))
	for _, s := range settings {
		all = append(all, *s)
	}
	return all
}

// Environment is the name of the variable that sets it.
func (s Setting) Environment() string {
	return EnvironmentPrefix + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
}

// Default is the built-in value as text.
func (s Setting) Default() string {
	c := Defaults()
	return s.of(&c).text
}

// Print returns the setting's value in c as text. The text is a valid value of the setting.
func (s Setting) Print(c Config) string { return s.of(&c).text }

// settings is the table in the order of names. A setting has the group of the list that it stands in.
var settings = func() []*Setting {
	var all []*Setting
	for group, list := range map[Group][]*Setting{
		GroupObjects:     slices.Concat(objectSettings, etcdSettings),
		GroupAgent:       agentSettings,
		GroupEnforcement: enforcementSettings,
		GroupLimits:      limitSettings,
		GroupReporting:   reportingSettings,
	} {
		for _, s := range list {
			s.Group = group
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *Setting) int { return strings.Compare(a.Name, b.Name) })
	return all
}()

// find returns nil for a name that no setting has.
func find(name string) *Setting {
	i, ok := slices.BinarySearchFunc(settings, name, func(s *Setting, name string) int { return strings.Compare(s.Name, name) })
	if !ok {
		return nil
	}
	return settings[i]
}

// from makes it one that the datastore can set.
func (s *Setting) from(convert func(felixValues) (felixText, error), fields ...string) *Setting {
	s.Felix, s.felix = fields, convert
	return s
}

// also makes it one that variables of other programs set.
func (s *Setting) also(names ...string) *Setting {
	s.Others = names
	return s
}

// newSetting is a setting of any type whose values can be compared. at is where its value is.
func newSetting[T comparable](name string, e Effect, at func(*Config) *T, parse func(string) (T, error), print func(T) string, usage string) *Setting {
	return newSettingOf(name, e, at, parse, print, func(a, b T) bool { return a == b }, usage)
}

// newSettingOf is a setting of any type.
func newSettingOf[T any](name string, e Effect, at func(*Config) *T, parse func(string) (T, error), print func(T) string,
	equal func(a, b T) bool, usage string) *Setting {
	typed := func(v T) parsed {
		return parsed{print(v), func(c *Config) { *at(c) = v }, func(c *Config) bool { return equal(*at(c), v) }}
	}
	return &Setting{
		Name: name, Usage: usage, Effect: e, Type: typeText,
		conversions: conversions{
			parse: func(text string) (parsed, error) {
				v, err := parse(text)
				if err != nil {
					return parsed{}, err
				}
				return typed(v), nil
			},
			of: func(c *Config) parsed { return typed(*at(c)) },
		},
	}
}

// Types of values.
const (
	typeText     = "text"
	typeBool     = "bool"
	typeDuration = "duration"
	typeNumber   = "number"
)

// Patterns of values, in the syntax that Go and JSON Schema share.
const (
	durationPattern  = `^[+]?(0|([0-9]+[.]?[0-9]*(ns|us|µs|ms|s|m|h))+)$`
	numberPattern    = `^[0-9]+$`
	addressPattern   = `^([oO][fF][fF]|.*:[0-9]+)$`
	markPattern      = `^(0[xX][0-9a-fA-F_]+|0[bB][01_]+|0?[oO]?[0-9_]+)$`
	sizesPattern     = `^ *[^=, ]+=0*[1-9][0-9]* *(, *([^=, ]+=0*[1-9][0-9]* *)?)*$`
	portsPattern     = `^([oO][fF][fF]| *[0-9]+ *(, *[0-9]+ *)*)$`
	prefixPattern    = `^[^/\s]{1,8}$`
	instancePattern  = `^[0-9A-Za-z_-]{0,64}$`
	statusDirPattern = `^([oO][fF][fF]|/.*)$`
)

// like says what valid values look like.
func (s *Setting) like(pattern string) *Setting {
	s.Pattern = pattern
	return s
}

func itself(text string) string { return text }

// textSetting takes any text.
func textSetting(name string, e Effect, at func(*Config) *string, usage string) *Setting {
	return newSetting(name, e, at, func(text string) (string, error) { return text, nil }, itself, usage)
}

// oneOf takes one of a few words, in any case.
func oneOf(name string, e Effect, at func(*Config) *string, usage string, words ...string) *Setting {
	parse := func(text string) (string, error) { return oneWord(text, words...) }
	s := newSetting(name, e, at, parse, itself, usage)
	s.Words = words
	return s
}

// either takes one of two words, in any case; the value is whether it is the second.
func either(name string, e Effect, at func(*Config) *bool, usage, no, yes string) *Setting {
	parse := func(text string) (bool, error) {
		word, err := oneWord(text, no, yes)
		return word == yes, err
	}
	s := newSetting(name, e, at, parse, func(v bool) string {
		if v {
			return yes
		}
		return no
	}, usage)
	s.Words = []string{no, yes}
	return s
}

// toggle takes true or false.
func toggle(name string, e Effect, at func(*Config) *bool, usage string) *Setting {
	s := newSetting(name, e, at, parseBool, func(v bool) string { return fmt.Sprint(v) }, usage)
	s.Type = typeBool
	return s
}

// duration takes a duration of at least least.
func duration(name string, e Effect, at func(*Config) *time.Duration, least time.Duration, usage string) *Setting {
	parse := func(text string) (time.Duration, error) { return parseDuration(text, least) }
	s := newSetting(name, e, at, parse, printDuration, usage)
	s.Type, s.Pattern = typeDuration, durationPattern
	return s
}

// zeroOr takes 0, or a duration of at least least.
func zeroOr(name string, e Effect, at func(*Config) *time.Duration, least time.Duration, usage string) *Setting {
	parse := func(text string) (time.Duration, error) {
		d, err := parseDuration(text, 0)
		if err == nil && d > 0 && d < least {
			err = fmt.Errorf("want 0s, or a duration of at least %s", printDuration(least))
		}
		return d, err
	}
	s := newSetting(name, e, at, parse, printDuration, usage)
	s.Type, s.Pattern = typeDuration, durationPattern
	return s
}

// number takes a number of type T.
func number[T uint16 | uint32](name string, e Effect, at func(*Config) *T, parse func(string) (T, error), usage string) *Setting {
	s := newSetting(name, e, at, parse, func(n T) string { return fmt.Sprint(n) }, usage)
	s.Type, s.Pattern, s.Max = typeNumber, numberPattern, uint64(^T(0))
	return s
}
