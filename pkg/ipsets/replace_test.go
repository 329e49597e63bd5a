package ipsets_test

import (
	"maps"
	"os/exec"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/ipsets"
)

// restored makes a set with the entries of mgy-class by the ipset command.
func restored(t *testing.T, name string, alter func(string) string) {
	t.Helper()
	text := alter(strings.ReplaceAll(run(t, "ipset", "save", "mgy-class"), "mgy-class", name))
	cmd := exec.Command("ipset", "restore")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s%s", err, out, text)
	}
}

// Another set with the name of ours is noticed by its header alone, though it has as many entries, and is replaced by one of ours.
func TestAnotherSetWithTheNameOfOursIsReplaced(t *testing.T) {
	same := func(text string) string { return text }
	for what, alter := range map[string]func(string) string{
		"a copy":            same,
		"another entry":     func(text string) string { return strings.Replace(text, "10.1.0.0/16", "10.2.0.0/16", 1) },
		"a smaller limit":   func(text string) string { return strings.Replace(text, "maxelem", "maxelem 100 forceadd skbinfo #", 1) },
		"no marks":          func(text string) string { return strings.NewReplacer(" skbinfo", "", " skbmark", " #").Replace(text) },
		"entries that time": func(text string) string { return strings.Replace(text, " skbinfo", " skbinfo timeout 1", 1) },
	} {
		t.Run(what, func(t *testing.T) {
			inNamespace(t, "iptables", "ipset")
			k := openKernel(t)
			s := ensure(t, k, class4)
			apply(t, s, put(key("0.0.0.0/0"), 1), put(key("10.0.0.0/8"), 2), put(key("10.1.0.0/16"), 3))
			before := list(t, k, s.Spec())
			t.Setenv("XTABLES_LOCKFILE", t.TempDir()+"/lock")
			run(t, "iptables", "-A", "INPUT", "-m", "set", "--match-set", class4.Name, "src")
			restored(t, "other", cut(alter))
			glance(t, s, true)
			run(t, "ipset", "swap", "other", class4.Name)
			glance(t, s, false)
			if r := resync(t, s); !r.Replaced || r.Len() != 1 {
				t.Errorf("%+v", r)
			}
			replacedBy(t, k, s, before)
			if h, err := k.Header(class4.Name); err != nil || h.References != 1 {
				t.Errorf("%+v, %v", h, err)
			}
		})
	}
}

// cut ends lines at #.
func cut(alter func(string) string) func(string) string {
	return func(text string) string {
		var b strings.Builder
		for line := range strings.Lines(alter(text)) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
			b.WriteString(line + "\n")
		}
		return b.String()
	}
}

func replacedBy(t *testing.T, k ipsets.Kernel, s *ipsets.Set, before map[ipsets.Key]uint32) {
	t.Helper()
	glance(t, s, true)
	want(t, k, s.Spec(), maps.Clone(before))
	waits := 0
	for range 2 { // there is nothing to discard any more
		if err := ipsets.Discard([]*ipsets.Set{s}, func() error { waits++; return nil }); err != nil || waits != 1 {
			t.Errorf("waited %d times, %v", waits, err)
		}
	}
	if names, err := k.Names("mgy-"); err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
}

// Two sets of ours that somebody swaps have as many entries and the same revision.
func TestTwoSetsOfOursAreSwapped(t *testing.T) {
	eachKernel(t, func(t *testing.T, k ipsets.Kernel) {
		a, b := class4, class4
		a.Name, b.Name = "a", "b"
		one, two := ensure(t, k, a), ensure(t, k, b)
		apply(t, one, put(key("10.0.0.0/8"), 1))
		apply(t, two, put(key("10.0.0.0/8"), 2))
		if err := k.Swap("a", "b"); err != nil {
			t.Fatal(err)
		}
		for mark, s := range map[uint32]*ipsets.Set{1: one, 2: two} {
			glance(t, s, false)
			if r := resync(t, s); !r.Replaced {
				t.Errorf("%+v", r)
			}
			glance(t, s, true)
			if got := list(t, k, s.Spec())[key("10.0.0.0/8")]; got != mark {
				t.Errorf("the mark is %d, want %d", got, mark)
			}
		}
	})
}

// A replacement that fails halfway is repeated, and leaves no set of its own.
func TestAReplacementThatFailsIsRepeated(t *testing.T) {
	k := ipsets.NewFake()
	s := ensure(t, k, class4)
	apply(t, s, put(key("10.0.0.0/8"), 1))
	before := list(t, k, s.Spec())
	other := s.Spec()
	other.Name, other.MaxEntries = "other", other.MaxEntries+1
	create(t, k, other)
	if err := k.Swap("other", class4.Name); err != nil {
		t.Fatal(err)
	}
	k.Refuse = func(string, ipsets.Change) error { return ipsets.ErrFull }
	if r, err := s.Resync(); err == nil || r.Len() == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	glance(t, s, false)
	k.Refuse = nil
	resync(t, s)
	replacedBy(t, k, s, before)
}
