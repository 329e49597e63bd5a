package node

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/attach"
)

// refusal returns why the BPF dataplane did not open, in one line. The rights that this process lacks, or else the features that the
// kernel lacks, explain more than failed, the error that followed (D-10). They are checked only here, since that costs time.
func refusal(failed error, bpffs string) error {
	lacking, err := attach.LackingCapabilities()
	if len(lacking) > 0 {
		first, _, _ := strings.Cut(failed.Error(), "\n")
		return fmt.Errorf("the BPF dataplane needs %s, which this process does not have: run it as root, or add what is "+
			"missing to securityContext.capabilities of its container (%s)", strings.Join(lacking, " and "), first)
	}
	if lacks := attach.Probe(bpffs).Err(); lacks != nil {
		if errors.Is(failed, unix.EPERM) {
			return refused{lacks.Error() + " though this process has the capabilities: look for a seccomp profile, a security module " +
				"(/sys/kernel/security/lsm) or kernel lockdown that refuses it, or enforce with --dataplane iptables; margay check says more", failed}
		}
		return refused{lacks.Error() + "; margay check says more", failed}
	}
	failed = errors.Join(failed, err)
	return refused{oneLine(failed), failed}
}

// refused is an error with a text of its own.
type refused struct {
	text  string
	cause error
}

func (r refused) Error() string { return r.text }

func (r refused) Unwrap() error { return r.cause }
