package chains

import "fmt"

// remotes are the chains that find the class of the other end.
type remotes struct {
	t          *terms
	masquerade Masquerade
}

// The chains by which slots of each direction find it.
const (
	classIngress = "class-in"
	classEgress  = "class-eg"
)

// chains makes them, and the chain that gives a packet the class of the node, whose address will be its source.
func (r *remotes) chains() ([]Chain, error) {
	t, m := r.t, r.masquerade
	list := []Chain{t.chain(classEgress, r.find("dst", "src")...)}
	ingress := r.find("src", "dst")
	if m.Mark == 0 {
		return append(list, t.chain(classIngress, ingress...)), nil
	}
	class, err := t.marks.Class(m.Class)
	if err != nil {
		return nil, err
	}
	var masqueraded []string
	for _, a := range m.Addrs {
		masqueraded = append(masqueraded, fmt.Sprintf("-m conntrack --ctrepldst %v -g %s", a, t.name("node")))
	}
	// The first packet of a flow has kube-proxy's mark; of later ones conntrack has the address that answers go to. The state SNAT alone
	// does not say that the address was replaced: conntrack may have replaced only the port, if another flow has the same ends.
	return append(list,
		t.chain(classIngress, append(ingress, t.marked(m.Mark, m.Mark)+" -j "+t.name("node"), "-m conntrack --ctstate SNAT -j "+t.name("masqueraded"))...),
		t.chain("masqueraded", masqueraded...),
		t.chain("node", t.mark(class.Value, class.Mask))), nil
}

// find looks up the class: of an address of packets along their flow, and of the other address of those against it.
func (r *remotes) find(along, against string) []string {
	t, flag := r.t, r.t.marks.against()
	return []string{
		t.marked(0, flag) + " -j SET --map-set " + t.sets.Class + " " + along + " --map-mark",
		t.marked(flag, flag) + " -j SET --map-set " + t.sets.Class + " " + against + " --map-mark",
	}
}
