package corpus

import (
	"regexp"
	"testing"
)

const dir = "../../test/corpus"

func TestCorpus(t *testing.T) {
	cases, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	Run(t, cases, compiledEngines()...)
}

func TestEveryCaseSaysWhatItProves(t *testing.T) {
	cases, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	reason := regexp.MustCompile(`§[0-9]|D-[0-9]`)
	for _, c := range cases {
		if !reason.MatchString(c.Doc) {
			t.Errorf("%s: its comment names neither a D-x nor a §: %q", c.Name, c.Doc)
		}
		if len(c.Checks) == 0 {
			t.Errorf("%s: no checks", c.Name)
		}
	}
	if len(cases) < 150 {
		t.Errorf("%d cases, want at least 150", len(cases))
	}
}

func compiledEngines() []Engine {
	return []Engine{
		&Compiled{}, &Compiled{Wide: true}, &Compiled{Interpret: true},
		&Compiled{Stepwise: true}, &Compiled{Wide: true, Stepwise: true}, &Compiled{Interpret: true, Stepwise: true},
	}
}
