package corpus_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/corpus"
	"github.com/margay-project/margay/internal/testutil"
)

func kernels(t *testing.T) []corpus.Engine {
	t.Helper()
	testutil.Privileged(t)
	var engines []corpus.Engine
	for _, how := range []struct{ interpret, wide bool }{{}, {wide: true}, {interpret: true}} {
		k, err := corpus.NewKernel(testutil.BPFFS(t), how.interpret, how.wide)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := k.Close(); err != nil {
				t.Error(err)
			}
		})
		engines = append(engines, k)
	}
	return engines
}

// TestCorpusInKernel proves the BPF programs, by either kind of table and by interpreter, on every case.
func TestCorpusInKernel(t *testing.T) {
	engines := kernels(t)
	cases, err := corpus.Load("../../test/corpus")
	if err != nil {
		t.Fatal(err)
	}
	corpus.Run(t, cases, engines...)
	if strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
		return // a few cases were named, which may have no staged policies
	}
	for _, e := range engines {
		k, ok := e.(*corpus.Kernel)
		if !ok {
			t.Fatalf("%T", e)
		}
		if denied, allowed := k.StagedDifferences(); denied == 0 || allowed == 0 {
			t.Errorf("%s: staged policies would have denied %d packets and allowed %d, but some cases are about that", k.Name(), denied, allowed)
		}
	}
}
