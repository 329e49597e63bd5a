package node

import (
	"fmt"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/dataplane/iptables"
	"github.com/margay-project/margay/pkg/marks"
)

// ownMarks are the packet mark bits that a dataplane uses, and the setting that chooses them.
type ownMarks struct {
	bits    uint32
	setting string
}

func bpfMarks(c config.Config) ownMarks {
	seen, judge, own := c.Marks()
	return ownMarks{seen | judge | own, "--mark-mask"}
}

func iptablesMarks(c config.Config) ownMarks {
	return ownMarks{c.IptablesMarkMask, "--iptables-mark-mask"}
}

// findMarks finds the rules of others that use some of the bits: nftables, iptables and routing rules of this network namespace.
func findMarks(bits uint32) ([]marks.User, error) {
	users, err := marks.Find()
	users = slices.DeleteFunc(users, func(u marks.User) bool { return slices.ContainsFunc(strings.Fields(u.Where), iptables.OwnChain) })
	return marks.Of(users, bits), err
}

// markCheck looks for rules of others that use our mark bits.
func markCheck(ours ownMarks) Result {
	check := Result{Name: fmt.Sprintf("mark bits %#08x", ours.bits), OK: true, Detail: "no rule of the node uses them"}
	users, err := findMarks(ours.bits)
	switch {
	case len(users) > 0:
		check.OK = false
		check.Detail = markText(users, ours.setting)
	case err != nil:
		check.Detail = "some could not be read: " + oneLine(err)
	}
	return check
}

// markText names the rules that use our mark bits, and the remedy.
func markText(users []marks.User, setting string) string {
	const most = 3
	var list []string
	for _, u := range users[:min(len(users), most)] {
		list = append(list, u.String())
	}
	if more := len(users) - most; more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return "other programs use packet mark bits of Margay: " + strings.Join(list, "; ") + "; choose other bits with " + setting + ", or change those rules"
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// markFindings are the rules that change our mark bits: they can keep policy from being enforced, or drop what it allows.
// margay check reports rules that only read them.
func markFindings(ours ownMarks) ([]string, error) {
	users, err := findMarks(ours.bits)
	var changing []marks.User
	for _, u := range users {
		if u.Reads = 0; u.Changes != 0 {
			changing = append(changing, u)
		}
	}
	if len(changing) == 0 {
		return nil, err
	}
	return []string{markText(changing, ours.setting) + "; until then policy may not be enforced"}, nil
}
