package chains_test

import (
	"errors"
	"testing"

	"github.com/margay-project/margay/pkg/compile/chains"
)

func TestMarksNeedARunOf12Bits(t *testing.T) {
	for mask, fits := range map[uint32]bool{
		0xffff0000: true, 0x0000ffff: true, 0x00ffff00: true, 0xffffffff: true, 0x7fffff00: true,
		0xfff00000: true, 0x0000fff0: true, 0: false, 0xffe00000: false, 0xfffefff0: false, 0x00007ff0: false, 0xff00ff00: false,
	} {
		_, err := chains.NewMarks(mask)
		var wrong *chains.MaskError
		if (err == nil) != fits || err != nil && !errors.As(err, &wrong) {
			t.Errorf("mask %#x: %v, and it should fit: %v", mask, err, fits)
		}
	}
}

// SET replaces the bits of its mask by xor: a number too large for them would toggle the flag that allows.
func TestMarksRefuseNumbersTooLarge(t *testing.T) {
	m, err := chains.NewMarks(chains.DefaultMask)
	if err != nil {
		t.Fatal(err)
	}
	if m.Most() != 8191 || m.MostGeneration() != 16383 {
		t.Errorf("numbers up to %d and generations up to %d", m.Most(), m.MostGeneration())
	}
	check := func(what string, v chains.Value, err error, want string) {
		t.Helper()
		var wrong *chains.RangeError
		switch {
		case want == "" && !errors.As(err, &wrong):
			t.Errorf("%s: %v, %v; it should be refused", what, v, err)
		case want != "" && (err != nil || v.String() != want):
			t.Errorf("%s: %v, %v; want %s", what, v, err, want)
		case v.Value&^v.Mask != 0:
			t.Errorf("%s: %v has bits beyond its mask", what, v)
		}
	}
	for id, want := range map[uint32]string{0: "0x10000/0x1fff0000", 8190: "0x1fff0000/0x1fff0000", 8191: "", 1 << 31: "", 0xffffffff: ""} {
		v, err := m.Class(id)
		check("class", v, err, want)
	}
	for number, want := range map[uint32]string{0: "", 1: "0x10000/0x3fff0000", 8191: "0x1fff0000/0x3fff0000", 8192: "", 1 << 16: ""} {
		v, err := m.Slot(number)
		check("slot", v, err, want)
	}
	for g, want := range map[uint32]string{0: "", 2: "0x80020000/0xbfff0000", 16383: "0xbfff0000/0xbfff0000", 16384: ""} {
		v, err := m.Generation(g)
		check("generation", v, err, want)
	}
	type reading struct {
		g              uint32
		turned, denied bool
	}
	for mark, want := range map[uint32]reading{
		0: {}, 0x1234: {}, 0x40000000: {turned: true}, 0x80051234: {g: 5}, 0xc0051234: {g: 5, turned: true},
		0x00051234: {g: 5, denied: true}, 0x40050000: {5, true, true},
	} {
		g, turned, denied := m.GenerationOf(mark)
		if got := (reading{g, turned, denied}); got != want {
			t.Errorf("mark %#x: %+v, want %+v", mark, got, want)
		}
	}
}

// Policy has no generation whose mark means something else: a connection that policy denied under generation 1 would seem to be one that a
// packet judged alone has begun.
func TestChainsHaveNoGenerationWithAMeaningOfItsOwn(t *testing.T) {
	m, err := chains.NewMarks(chains.DefaultMask)
	if err != nil {
		t.Fatal(err)
	}
	for g, refused := range map[uint32]bool{chains.NeverJudged: true, chains.ToBeJudged: true, chains.FirstGeneration: false, m.MostGeneration(): false,
		m.MostGeneration() + 1: true} {
		_, err := chains.NewStatic(&chains.Config{Marks: m, Names: chains.Names{World: chains.WorldA}, Family: 4, Interfaces: "cali", Generation: g})
		if (err != nil) != refused {
			t.Errorf("generation %d: %v, and it should be refused: %v", g, err, refused)
		}
	}
}
