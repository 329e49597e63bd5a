package node

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/inspect"
)

func TestAutoTakesIPTablesWhereTheKernelLacksSomething(t *testing.T) {
	lacks, fails := errors.New("kernel 5.14 cannot run the BPF dataplane: TCX links: missing (Linux 6.6)"), errors.New("fails")
	works := func() (*Dataplane, error) { return &Dataplane{}, nil }
	broken := func() (*Dataplane, error) { return nil, fails }
	for name, c := range map[string]struct {
		auto auto
		how  inspect.ChoiceKind
		err  string
	}{
		"the kernel has everything": {auto{kernel: none, programs: none, bpf: works, iptables: broken}, inspect.ChoicePreferred, ""},
		"it lacks something":        {auto{kernel: always(lacks), bpf: broken, iptables: works}, inspect.ChoiceFallback, ""},
		"it refuses the programs":   {auto{kernel: none, programs: always(lacks), bpf: broken, iptables: works}, inspect.ChoiceFallback, ""},
		"a mistake":                 {auto{kernel: none, programs: none, bpf: broken, iptables: works}, "", "fails"},
		"neither":                   {auto{kernel: always(lacks), bpf: works, iptables: broken}, "", "neither dataplane can run here: " + lacks.Error() + "; fails"},
	} {
		t.Run(name, func(t *testing.T) {
			opened, err := c.auto.open()
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "\n") {
					t.Errorf("error %v, want one line with %q", err, c.err)
				}
				return
			}
			if err != nil || opened.Chosen.How != c.how || (opened.Chosen.Reason != "") != (c.how == inspect.ChoiceFallback) {
				t.Errorf("chose %+v, %v; want %s", opened, err, c.how)
			}
		})
	}
}

func none() error { return nil }

func always(err error) func() error { return func() error { return err } }

// TestAMistakeIsNoReasonForTheOtherDataplane: what another kernel would not mend.
func TestAMistakeIsNoReasonForTheOtherDataplane(t *testing.T) {
	missing := errors.New("missing")
	for name, c := range map[string]struct {
		check attach.Check
		want  bool
	}{
		"works":           {attach.Check{Needed: true}, false},
		"missing":         {attach.Check{Needed: true, Err: missing}, true},
		"not permitted":   {attach.Check{Needed: true, Err: unix.EPERM}, false},
		"not mounted":     {attach.Check{Needed: true, Setup: true, Err: missing}, false},
		"only a shortcut": {attach.Check{Err: missing}, false},
	} {
		if got := (attach.Report{Checks: []attach.Check{c.check}}).KernelLacks(); got != c.want {
			t.Errorf("%s: the kernel lacks something: %v, want %v", name, got, c.want)
		}
	}
	for name, want := range map[string]bool{"CAP_BPF": true, "CAP_NET_ADMIN": true} {
		if knownCapability(name) != want {
			t.Errorf("this kernel knows %s: %v", name, !want)
		}
	}
}
