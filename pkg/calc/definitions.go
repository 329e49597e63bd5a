package calc

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// kind is the kind of a definition, and the prefix of the ids of its sets.
type kind string

const (
	kindSelector     kind = "s"    // what a selector selects
	kindNamedPort    kind = "n"    // endpoints a selector selects, by the port they expose under a name
	kindServicePort  kind = "svc"  // backends of a Service, by port
	kindServiceAddrs kind = "svca" // backends of a Service
	kindNodes        kind = "node" // nodes that a selector selects by their own labels
)

// byPort reports whether a definition of the kind has a set for every protocol and port, rather than exactly one set.
func (k kind) byPort() bool { return k == kindNamedPort || k == kindServicePort }

var kindsByService = []kind{kindServicePort, kindServiceAddrs}

// isListed reports whether sets of the kind have whole contributions in place of counted members.
func (k kind) isListed() bool { return slices.Contains(kindsByService, k) }

// definitionKey says what a rule refers to, in canonical form.
type definitionKey struct {
	kind     kind
	selector string           // kindSelector, kindNamedPort, kindNodes
	name     string           // kindNamedPort
	protocol uint8            // kindNamedPort: the only protocol, 0 for any
	service  model.ServiceKey // kindServicePort, kindServiceAddrs
}

// portKey is the protocol and port number of one set of a definition; zero for a kind that is not by port.
type portKey struct {
	protocol uint8
	port     uint16
	past     bool // instead of a number: all of the protocol that are past the limit (MaxPortNumbers, MaxBackends), or leftOut
}

func (k portKey) compare(o portKey) int {
	if k.past != o.past {
		if o.past {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(k.protocol, o.protocol), cmp.Compare(k.port, o.port))
}

// findings are the definitions that rules use of one selector's endpoints in the cluster.
type findings struct {
	addrs *definition              // the set of their addresses
	ports map[string][]*definition // their named ports, by name
}

func (f *findings) isEmpty() bool { return f.addrs == nil && len(f.ports) == 0 }

func (f *findings) remove(d *definition) {
	if f.addrs == d {
		f.addrs = nil
		return
	}
	name := d.key.name
	f.ports[name] = slices.DeleteFunc(f.ports[name], func(other *definition) bool { return other == d })
	if len(f.ports[name]) == 0 {
		delete(f.ports, name)
	}
}

// definition is something rules refer to and the sets it stands for at the moment. It exists while a rule uses it.
type definition struct {
	key       definitionKey
	selection *selection         // kindSelector, kindNamedPort
	nodes     *selector.Selector // kindNodes
	sets      map[portKey]*set
	ports     []portKey // of the sets, ascending, as the rules that use it know them
	users     map[*ruleset]struct{}
	numbers   *numbers            // kindNamedPort, with very many of them
	taken     map[string]*taken   // kindSelector: network sets, by namespace
	accounts  map[string]struct{} // that pay for it
	weight    int                 // the cost of finding its members when it was created, see spending
	closed    bool                // see relief
}

// id hashes the definition, and appends the port; see SetID.Definition. The selector is last because it is the only part that can hold any byte.
func (k definitionKey) id(p portKey) model.SetID {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%s\x00%s\x00%s",
		k.kind, k.name, k.protocol, k.service.Namespace, k.service.Name, k.selector))
	id := base64.RawURLEncoding.EncodeToString(sum[:])
	if p.protocol != 0 {
		id += fmt.Sprintf("/%d", p.protocol)
	}
	if p.port != 0 {
		id += fmt.Sprintf(".%d", p.port)
	}
	if p.past {
		return model.SetID(model.PrefixPast + id)
	}
	return model.SetID(string(k.kind) + ":" + id)
}

// text describes one set of the definition to people: in Kubernetes' words where its rule is a Kubernetes object's.
func (d *definition) text(p portKey) string {
	switch k := d.key; k.kind {
	case kindSelector:
		if p.past {
			return "around the network sets left out of " + d.selection.Selector().Words()
		}
		return d.selection.Selector().Words()
	case kindNamedPort:
		pods := strings.TrimPrefix(d.selection.Selector().Words(), "selector ")
		if p.past {
			return fmt.Sprintf("named port %s/%s past %d numbers of a namespace, of %s", k.name, protocolName(p.protocol), MaxPortNumbers, pods)
		}
		return fmt.Sprintf("named port %s/%s %d of %s", k.name, protocolName(p.protocol), p.port, pods)
	case kindNodes:
		if d.nodes.IsAll() {
			return "all nodes"
		}
		return "nodes " + k.selector
	case kindServicePort:
		if p.past {
			return fmt.Sprintf("backends left out of service %s, %s", k.service, protocolName(p.protocol))
		}
		return fmt.Sprintf("service %s port %d/%s", k.service, p.port, protocolName(p.protocol))
	}
	if p.past {
		return fmt.Sprintf("backends left out of service %s", d.key.service)
	}
	return fmt.Sprintf("service %s", d.key.service)
}

func protocolName(p uint8) string {
	switch p {
	case model.ProtoTCP:
		return "tcp"
	case model.ProtoUDP:
		return "udp"
	case model.ProtoSCTP:
		return "sctp"
	}
	return strconv.Itoa(int(p))
}

// selectorKey is the key of everything that a selector selects.
func selectorKey(sel *selector.Selector) definitionKey {
	return definitionKey{kind: kindSelector, selector: sel.String()}
}

// namedPortKey is the key of the endpoints the selector selects that expose the port under that name, with that protocol
// unless it is nil.
func namedPortKey(name string, protocol *uint8, sel *selector.Selector) definitionKey {
	key := definitionKey{kind: kindNamedPort, selector: sel.String(), name: name}
	if protocol != nil {
		key.protocol = *protocol
	}
	return key
}

// livePorts returns the ports of the sets that have members.
func (d *definition) livePorts() []portKey {
	var live []portKey
	for k, s := range d.sets {
		if !s.isEmpty() {
			live = append(live, k)
		}
	}
	slices.SortFunc(live, portKey.compare)
	return live
}
