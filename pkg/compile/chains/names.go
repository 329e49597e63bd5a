package chains

import "fmt"

// World is the letter in the names of one agent's chains and sets. A starting agent makes its world while another one judges.
type World byte

// The worlds. An agent needs the third if both backends of iptables have one in force.
const (
	WorldA World = 'A'
	WorldB World = 'B'
	WorldC World = 'C'
)

// Worlds are all of them.
var Worlds = [...]World{WorldA, WorldB, WorldC}

// maxInstance is the greatest length of Names.Instance in bytes, so that names of chains are shorter than 28 bytes.
const maxInstance = 4

// Names makes the names of the chains and sets of one world. Instance distinguishes agents on one machine.
type Names struct {
	Instance string
	World    World
}

// Prefix returns the beginning of the names of all chains and sets of the world.
func (n Names) Prefix() string { return "mgy" + n.Instance + string(n.World) }

// Chain returns the full name of a chain.
func (n Names) Chain(name string) string { return n.Prefix() + "-" + name }

// slot returns the name of the first chain of a slot; those of its other chains begin with it.
func (n Names) slot(number uint32) string { return n.Chain(fmt.Sprintf("s%d", number)) }

// Sets are the names of the sets of one family.
type Sets struct {
	Own     string // address and interface of each endpoint that is ready
	Owned   string // address or prefix: belongs to an endpoint, a node or a Service, so it is no further source
	Egress  string // address and interface: the slot of its egress
	Ingress string // address and interface: the slot of its ingress
	Class   string // address or prefix: its class
}

// Sets returns the names for a family, 4 or 6.
func (n Names) Sets(family uint8) Sets {
	name := func(what string) string { return fmt.Sprintf("%s%d-%s", n.Prefix(), family, what) }
	return Sets{Own: name("own"), Owned: name("owned"), Egress: name("eg"), Ingress: name("in"), Class: name("class")}
}

// Source names what the chains need of a pod with further sources: its interface, and two sets of the prefixes. Their entries have the
// slots of its egress and ingress. Each pod has sets of its own. In one set of prefixes and interfaces, a longer prefix of one pod would
// hide a shorter one of another pod from the kernel's lookups.
type Source struct {
	Interface       string
	Egress, Ingress string
}

// Source returns the names of the sets of a pod with further sources. The number distinguishes such pods.
func (n Names) Source(family uint8, number int, iface string) Source {
	name := func(what string) string { return fmt.Sprintf("%s%d-src%d-%s", n.Prefix(), family, number, what) }
	return Source{Interface: iface, Egress: name("eg"), Ingress: name("in")}
}
