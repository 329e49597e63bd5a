package chains

import "fmt"

// World is one of some sets of names. A new agent makes all chains and sets of one world while those of another judge.
type World byte

// The worlds. The third is for an agent that finds one in force of either backend of iptables.
const (
	WorldA World = 'A'
	WorldB World = 'B'
	WorldC World = 'C'
)

// Worlds are all of them.
var Worlds = [...]World{WorldA, WorldB, WorldC}

// MaxInstance is the most bytes that the prefix for an instance may have, so that names of chains stay below 28.
const MaxInstance = 4

// Names are the names of the chains and sets of one world. Instance tells agents on one machine apart.
type Names struct {
	Instance string
	World    World
}

// Prefix is what all of its chains and sets begin with.
func (n Names) Prefix() string { return "mgy" + n.Instance + string(n.World) }

// Chain is the name of a chain.
func (n Names) Chain(name string) string { return n.Prefix() + "-" + name }

// Sets are the names of the sets of one family.
type Sets struct {
	Own     string // address and interface of each endpoint that is ready
	Sources string // prefix and interface of further sources
	Egress  string // address and interface: the slot of its egress
	Ingress string // address and interface: the slot of its ingress
	Class   string // address or prefix: its class
}

// Sets are those of a family, 4 or 6.
func (n Names) Sets(family uint8) Sets {
	name := func(what string) string { return fmt.Sprintf("%s%d-%s", n.Prefix(), family, what) }
	return Sets{Own: name("own"), Sources: name("src"), Egress: name("eg"), Ingress: name("in"), Class: name("class")}
}
