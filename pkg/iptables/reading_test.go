package iptables

import (
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/ruleset"
)

// TestAReadingMayHaveWhatTheTableHasReplaced: each content of a chain since Observe is one that the agent has written; others are not.
func TestAReadingMayHaveWhatTheTableHasReplaced(t *testing.T) {
	fake := NewFake()
	table := fake.Tools(Legacy).Table(V4, "mangle", "mgy")
	set := func(name string, rules ...string) {
		t.Helper()
		if err := table.Set(ruleset.Chain{Name: name, Rules: rules}); err != nil {
			t.Fatal(err)
		}
	}
	apply := func() {
		t.Helper()
		if _, err := table.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	read := func() *Reading {
		t.Helper()
		r, err := ReadAll(t.Context(), table, func() error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	check := func(what string, r *Reading, finding, skipped string) {
		t.Helper()
		text := ""
		findings, why := r.Altered(table)
		for _, f := range findings {
			text += f.String()
		}
		if !strings.Contains(text, finding) || finding == "" && text != "" || !strings.Contains(why, skipped) || skipped == "" && why != "" {
			t.Errorf("%s: found %q, skipped %q; want %q, %q", what, text, why, finding, skipped)
		}
	}
	set("mgyA-a", "-j ACCEPT")
	set("mgyA-gone", "-j ACCEPT")
	apply()
	wanted := true
	table.Observe(func() bool { return wanted })
	first := read()
	set("mgyA-a", "-j DROP")
	check("a change that waits", first, "", "")
	apply()
	second := read()
	set("mgyA-a", "-j RETURN")
	set("mgyA-new")
	table.Remove("mgyA-gone")
	apply()
	check("two transactions ago", first, "", "")
	check("a transaction ago", second, "", "")
	check("now", read(), "", "")
	if err := fake.Load(V4, "*mangle\n:mgyA-a - [0:0]\nCOMMIT\n"); err != nil {
		t.Fatal(err)
	}
	altered := read()
	check("by others", altered, "chain mgyA-a: it has 0 rules", "")
	set("mgyA-a", "-j LOG")
	check("by others, and a change waits", altered, "", "chain mgyA-a was to be written")
	wanted = false
	apply()
	check("nothing is kept any more", read(), "", "too many chains")
}
