package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/margay-project/margay/pkg/agent"
	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/bpfmaps"
)

// overtaken are the interfaces where programs of others run before those pinned in linkDir. Safe for concurrent use.
type overtaken struct {
	linkDir string

	mu   sync.Mutex // guards last
	last map[uint32]bool
}

// look looks for them. The dataplane does so too, but only when it attaches: policy may be bypassed for as long as that takes.
func (o *overtaken) look() agent.Look {
	return agent.Look{What: "programs before ours", Every: 10 * time.Second, Find: o.find}
}

// seen are those of the last look. The map must not be changed.
func (o *overtaken) seen() map[uint32]bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

func (o *overtaken) find() ([]string, error) {
	list, err := attach.ListPinned(o.linkDir)
	found := map[uint32]bool{}
	for _, a := range list {
		if a.Ingress.Before+a.Egress.Before > 0 {
			found[a.Ifindex] = true
		}
	}
	o.mu.Lock()
	o.last = found
	o.mu.Unlock()
	return overtakenFindings(o.linkDir, list, err)
}

// overtakenFindings returns that programs of others run before ours on workload interfaces, in one line. Whether they accept packets is not
// known, so each is a finding. err is that of the list.
func overtakenFindings(linkDir string, list []attach.Attachment, err error) ([]string, error) {
	var overtaken []string
	var links []uint32
	for _, a := range list {
		if a.Ingress.Before+a.Egress.Before == 0 {
			continue
		}
		if name := InterfaceNamed(int(a.Ifindex)); name != "" {
			overtaken = append(overtaken, name)
			links = slices.Concat(links, a.Ingress.Overtakes, a.Egress.Overtakes)
		}
	}
	if len(overtaken) == 0 {
		if err != nil {
			err = errors.New(oneLine(err))
		}
		return nil, err
	}
	instances, err := bpfmaps.LinksOfOthers(linkDir)
	if err != nil {
		return nil, err
	}
	return []string{overtakenText(overtaken, attach.Whose(links, instances))}, nil
}

// overtakenText names the interfaces, whose programs those are, and the remedy.
func overtakenText(interfaces []string, whose string) string {
	const most = 5
	names := interfaces[:min(len(interfaces), most)]
	if more := len(interfaces) - most; more > 0 {
		names = append(names[:most:most], fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("programs of %s run before Margay's on interfaces of pods (%s): policy does not judge the packets that they accept; "+
		"have their owner detach them, or attach them after Margay's", whose, strings.Join(names, ", "))
}
