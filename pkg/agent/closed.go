package agent

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// closedAfter is how long a workload interface may be without a pod before that is said: a CNI plugin makes it before the
// pod has an address.
const closedAfter = 30 * time.Second

// closedInterface is a workload interface that no pod of this node is known for: nothing but ARP and neighbour discovery
// passes it (D-18).
type closedInterface struct {
	name    string
	ifindex uint32
	since   time.Time // zero: it was there when the agent started, which then knew no pod of its own
	awaited string    // why the pod that has it is closed; empty: no pod is known
}

// reason is why it is closed.
func (i closedInterface) reason(node string) string {
	if i.awaited != "" {
		return i.awaited
	}
	return fmt.Sprintf("no pod of node %q is known for it", node)
}

// closedInterfaces are those there are, as of the last look. Owned by the loop.
type closedInterfaces struct {
	node  string
	log   *slog.Logger
	nodes func() map[string]int // counts the known pods by the node they say; only called if there is something to say

	list    []closedInterface // by name
	looked  bool
	none    bool              // no pod is this node's
	lasting []closedInterface // those of list that are no pod's in the making
	text    string            // the message about lasting; empty: none
	counted time.Time         // when text was made; it counts pods of other nodes, which change all the time
	logged  bool
}

func newClosedInterfaces(node string, log *slog.Logger, nodes func() map[string]int) *closedInterfaces {
	return &closedInterfaces{node: node, log: log, nodes: nodes}
}

// Observe implements observer.
func (c *closedInterfaces) Observe(o Outcome) {
	if o.Facts != nil {
		c.look(o.Ended, o.Facts.Interfaces, o.Facts.Local, o.Facts.Awaited...)
	}
}

// look compares the workload interfaces, ifindex by name, with the endpoints of this node. Pods that are awaited have problems of their own.
func (c *closedInterfaces) look(now time.Time, interfaces map[string]uint32, local []*model.EndpointPolicy, awaited ...calc.AwaitedPod) {
	if interfaces == nil {
		return // nothing is enforced yet, so nothing is closed
	}
	mine := map[string]bool{}
	for _, ep := range local {
		mine[ep.Iface] = true
	}
	awaits := map[string]string{}
	for _, p := range awaited {
		awaits[p.Iface] = p.String()
	}
	before := map[string]closedInterface{}
	for _, i := range c.list {
		before[i.name] = i
	}
	var list, lasting []closedInterface
	for _, name := range slices.Sorted(maps.Keys(interfaces)) {
		if mine[name] {
			continue
		}
		i, known := before[name]
		if !known || i.ifindex != interfaces[name] {
			i = closedInterface{name: name, ifindex: interfaces[name]}
			// Interfaces that were there when the agent started, and no pod of its own at all: most likely its name is
			// wrong. One interface beside pods of its own may be a pod's in the making.
			if c.looked || len(local)+len(awaited) > 0 {
				i.since = now
			}
		}
		i.awaited = awaits[name]
		list = append(list, i)
		if i.awaited == "" && now.Sub(i.since) >= closedAfter {
			lasting = append(lasting, i)
		}
	}
	none := len(local)+len(awaited) == 0
	changed := !slices.Equal(lasting, c.lasting) || c.none != none || now.Sub(c.counted) >= closedAfter
	c.list, c.lasting, c.none, c.looked = list, lasting, none, true
	if changed {
		c.counted, c.text = now, c.describe()
	}
	c.logChange()
}

// describe returns one line with the closed interfaces, and the reason as far as it is known.
func (c *closedInterfaces) describe() string {
	if len(c.lasting) == 0 {
		return ""
	}
	const most = 5
	var names []string
	for _, i := range c.lasting[:min(len(c.lasting), most)] {
		names = append(names, i.name)
	}
	if more := len(c.lasting) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	text := fmt.Sprintf("%s (%s): ", counted(len(c.lasting), "interface of pods is closed", "interfaces of pods are closed"), strings.Join(names, ", "))
	if !c.none {
		return text + fmt.Sprintf("no pod of node %q is known for them", c.node)
	}
	text += fmt.Sprintf("no pod of node %q is known", c.node)
	all := c.nodes()
	if len(all) == 0 {
		return text + ", nor of any other node: does the datastore have this node's pods?"
	}
	var others []string
	for _, name := range slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(all[b], all[a]), cmp.Compare(a, b))
	}) {
		if len(others) == most {
			others = append(others, fmt.Sprintf("and %d more", len(all)-most))
			break
		}
		others = append(others, fmt.Sprintf("%s (%s)", name, counted(all[name], "pod", "pods")))
	}
	return text + fmt.Sprintf("; known pods belong to %s: is %q this node's name (--node)?", strings.Join(others, ", "), c.node)
}

func counted(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// logChange logs that there are closed interfaces, and that there are none any more; not each one that comes and goes
// meanwhile.
func (c *closedInterfaces) logChange() {
	if c.logged == (c.text != "") {
		return
	}
	c.logged = c.text != ""
	if c.logged {
		c.log.Warn("pods are cut off", "err", c.text)
	} else {
		c.log.Info("every workload interface has its pod again")
	}
}

// unready is the reason why the agent is not ready: there are closed interfaces, and no pod at all for them. Empty: it
// is ready.
func (c *closedInterfaces) unready() string {
	if !c.none {
		return ""
	}
	return c.text
}

// problems returns the message, if there is one, as a problem of the node.
func (c *closedInterfaces) problems() []validate.Problem {
	return nodeProblem(c.node, c.text)
}
