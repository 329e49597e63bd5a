package ipsets

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/nfnl"
)

// Errors that a caller can act on; errors.Is finds them in the errors of a Kernel. Each text names the next step.
var (
	ErrFull        = errors.New("the set is full: it needs a larger limit of entries")
	ErrCrowded     = errors.New("64 interfaces have this prefix in the set: the kernel accepts no more of them")
	ErrNoSet       = errors.New("there is no such set: it has to be created again")
	ErrExists      = errors.New("a set of this name exists: destroy it first, or adopt it if its type is right")
	ErrInUse       = errors.New("rules refer to the set: remove them first")
	ErrType        = errors.New("the set of this name has another type, family or no marks: destroy it, after the rules that refer to it")
	ErrPermission  = errors.New("no permission: the process needs the capability NET_ADMIN in this network namespace")
	ErrUnsupported = errors.New("the kernel has no sets of this type with marks: load the modules ip_set, ip_set_hash_net, ip_set_hash_netiface and xt_set")
	ErrTooManySets = errors.New("the kernel accepts no more sets: see the parameter max_sets of the module ip_set")
	ErrEntry       = errors.New("the entry does not fit the set")
)

// Error is a failed operation on a set.
type Error struct {
	Op    string // such as "create" or "add"
	Set   string // "": none in particular
	Entry string // the entry that failed, "": none in particular
	Err   error
}

func (e *Error) Error() string {
	what := e.Op
	if e.Entry != "" {
		what += " " + e.Entry
	}
	if e.Set != "" {
		what += ", IP set " + e.Set
	}
	return what + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Error numbers of ipset (linux/netfilter/ipset/ip_set.h and its per-type ones).
const (
	codeProtocol     = 4097
	codeFindType     = 4098
	codeMaxSets      = 4099
	codeBusy         = 4100
	codeNoSecond     = 4101 // IPSET_ERR_EXIST_SETNAME2, of a swap
	codeTypeMismatch = 4102
	codeInvalidCIDR  = 4104
	codeFamily       = 4106
	codeReferenced   = 4108
	codeIPv4         = 4109
	codeIPv6         = 4110
	codeSkbinfo      = 4114
	codeFull         = 4352
	codeElement      = 4353
)

var meanings = map[int]error{
	codeFindType: ErrUnsupported, codeMaxSets: ErrTooManySets, codeBusy: ErrInUse, codeNoSecond: ErrNoSet, codeReferenced: ErrInUse,
	codeTypeMismatch: ErrType, codeSkbinfo: ErrType, codeFamily: ErrType, codeFull: ErrFull,
	codeInvalidCIDR: ErrEntry, codeIPv4: ErrEntry, codeIPv6: ErrEntry, codeElement: ErrEntry,
	int(unix.ENOENT): ErrNoSet, int(unix.EEXIST): ErrExists, int(unix.EPERM): ErrPermission,
}

// explained adds the meaning of a refusal's number.
func explained(err error) error {
	refused, ok := errors.AsType[*nfnl.Refused](err)
	if !ok {
		return err
	}
	if meaning, known := meanings[refused.Code]; known {
		return fmt.Errorf("%w (%w)", meaning, refused)
	}
	if refused.Code == codeProtocol {
		return fmt.Errorf("%w: ipset does not understand the request, which is a bug of Margay", refused)
	}
	return err
}

// definite reports whether an error means that the kernel did not make the change, rather than that its answer was lost.
func definite(err error) bool {
	if _, ok := errors.AsType[*nfnl.Refused](err); ok {
		return true
	}
	for _, known := range []error{ErrFull, ErrCrowded, ErrNoSet, ErrEntry, ErrPermission, ErrType} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}
