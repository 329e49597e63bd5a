package hostile

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/margay-project/margay/internal/oracle"
	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/model"
)

// place is where packets arrive.
type place struct {
	name  string
	addrs []netip.Addr
	pod   *model.EndpointID // nil: no pod
	node  *lab.Node         // if it is a node's own sockets; otherwise nil
}

// judge says of every packet that arrives somewhere whether the attackers may have brought it about: policy as the oracle
// reads it, and what docs/semantics.md says beside policy (§15). It knows what it sees arrive and no more.
type judge struct {
	cluster   *oracle.Kubernetes
	attackers map[netip.Addr]*lab.Pod
	nodes     []netip.Addr // the addresses of the nodes
	hostDrop  bool         // the agents run with --default-endpoint-to-host-action Drop

	mu     sync.Mutex
	opened map[model.Packet]bool       // the packets of flows that others opened to attackers
	pieces map[fragmentKey][]dissected // fragments of ICMP that attackers sent, the last ones
	firsts map[fragmentKey]bool        // datagrams of which an admitted first fragment was sent or arrived
	chosen map[token]netip.Addr        // link-local addresses that attackers, by their tags, have taken
	fair   map[string]int              // packets of attackers that were admitted, by place
}

type fragmentKey struct {
	src, dst netip.Addr
	id       uint32
}

// newJudge reads the policy that is written now.
func (s *scene) newJudge(attackers ...*lab.Pod) *judge {
	s.T.Helper()
	j := &judge{
		cluster: s.objects(), attackers: map[netip.Addr]*lab.Pod{}, opened: map[model.Packet]bool{},
		firsts: map[fragmentKey]bool{}, pieces: map[fragmentKey][]dissected{}, chosen: map[token]netip.Addr{}, fair: map[string]int{},
	}
	j.nodes = slices.Concat(s.n1.Addrs(), s.n2.Addrs())
	for _, p := range attackers {
		for _, a := range p.Addrs() {
			j.attackers[a] = p
		}
		j.attackers[linkLocal(p)] = p
	}
	return j
}

// objects are those of the manifests that policy is about.
func (s *scene) objects() *oracle.Kubernetes {
	s.T.Helper()
	k := &oracle.Kubernetes{}
	files, err := filepath.Glob(filepath.Join(s.Dir, "*.yaml"))
	if err != nil {
		s.T.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			s.T.Fatal(err)
		}
		for _, doc := range bytes.Split(text, []byte("\n---\n")) {
			var head metav1.TypeMeta
			err := yaml.Unmarshal(doc, &head)
			switch head.Kind {
			case "Pod":
				err = add(doc, &k.Pods)
			case "Namespace":
				err = add(doc, &k.Namespaces)
			case "Node":
				err = add(doc, &k.Nodes)
			case "NetworkPolicy":
				err = add(doc, &k.Policies)
			}
			if err != nil {
				s.T.Fatalf("%s: %v", f, err)
			}
		}
	}
	return k
}

func add[T any](doc []byte, list *[]*T) error {
	v := new(T)
	*list = append(*list, v)
	return yaml.UnmarshalStrict(doc, v)
}

// expect notes a flow that somebody else opened to an attacker, which may answer.
func (j *judge) expect(opening model.Packet) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.opened[opening] = true
}

// admitted is how many packets of attackers arrived somewhere as they may.
func (j *judge) admitted(at string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.fair[at]
}

// linkLocal is the address that the pod's kernel makes of its hardware address.
func linkLocal(p *lab.Pod) netip.Addr {
	m := p.MAC()
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]})
}

// sent notes the first fragments that an attacker may send. Not all of them arrive: the node's conntrack keeps those of
// datagrams that are not complete.
func (j *judge) sent(frame []byte) {
	if len(frame) < 15 {
		return
	}
	d, err := dissect(frame[14:])
	if err != nil {
		d, err = j.reassembled(frame[14:])
	}
	if err != nil || !d.fragment || j.attackers[d.Src] == nil {
		return
	}
	j.keep(d)
	if d.later {
		return
	}
	if j.allowed(d.Packet) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.firsts[fragmentKey{d.Src, d.Dst, d.id}] = true
	}
}

// reassembled reads a first fragment that has the ports and not all of the header behind them. With iptables the node puts datagrams
// together before it judges them, and divides them again as they were.
func (j *judge) reassembled(packet []byte) (dissected, error) {
	d, err := dissectQuoted(packet)
	if err == nil && (!testcluster.IPTables() || !d.fragment) {
		err = errShort
	}
	return d, err
}

// arrived says what is wrong with a packet, from its IP header on; empty: nothing, or it is none of the attackers'.
func (j *judge) arrived(at *place, packet []byte) string {
	d, err := dissect(packet)
	attacker := j.attackers[d.Src]
	if attacker == nil {
		if len(tokensIn(packet)) == 0 || at.node != nil && d.isNeighbour() && d.Src == netip.IPv6Unspecified() {
			return "" // somebody else's, or one who looks for an address of its own
		}
		if at.node != nil && d.isNeighbour() {
			return j.discovery(packet, d.Src)
		}
		if err == nil && j.isNodesError(at, d) {
			return ""
		}
		return fmt.Sprintf("it is an attacker's, and its source %s is not", d.Src)
	}
	if err != nil {
		d, err = j.reassembled(packet)
	}
	if err != nil && !(testcluster.IPTables() && d.Protocol != 0 && !d.isICMP() && !model.HasPorts(d.Protocol)) {
		return err.Error() // with iptables it is a packet of its protocol
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	wrong := j.weigh(at, attacker, d)
	if wrong == "" {
		j.fair[at.name]++
		if d.fragment && !d.later {
			j.firsts[fragmentKey{d.Src, d.Dst, d.id}] = true
		}
	}
	return wrong
}

// discovery lets each attacker have one link-local address beside that of its MAC: the first that it uses.
func (j *judge) discovery(packet []byte, src netip.Addr) string {
	if testcluster.IPTables() && src.IsLinkLocalUnicast() {
		return "" // docs/iptables.md: which of them is the pod's is not known
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	by := tokensIn(packet)[0] >> 56
	if _, has := j.chosen[by]; !has && src.IsLinkLocalUnicast() {
		j.chosen[by] = src
	}
	if j.chosen[by] == src {
		return ""
	}
	return "it is discovery with another's source"
}

// weigh judges a packet with an attacker's own source.
func (j *judge) weigh(at *place, attacker *lab.Pod, d dissected) string {
	own := at.node == attacker.Node()
	switch {
	case own && d.isNeighbour():
		return ""
	case !slices.Contains(at.addrs, d.Dst) && !own: // every address of the machine, and groups, are the own node's
		return fmt.Sprintf("it is for %s", d.Dst)
	case d.isTunnel():
		return "it is a tunnel's"
	case d.isAbsurd():
		return "its TCP flags make no sense"
	case d.source:
		return "it is routed by its source"
	case d.later:
		if !j.firsts[fragmentKey{d.Src, d.Dst, d.id}] {
			return "it is a fragment without an admitted first one"
		}
		return ""
	case d.isError():
		return j.weighError(d)
	case j.opened[turned(d.Packet)]:
		return ""
	case own && j.hostDrop:
		return "nothing of a pod may reach its node but answers"
	}
	return j.policy(at, attacker, d.Packet)
}

// keep notes a fragment of ICMP that was sent. An error may quote a packet in many of them.
func (j *judge) keep(d dissected) {
	if d.Protocol != unix.IPPROTO_ICMP && d.Protocol != unix.IPPROTO_ICMPV6 {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	key := fragmentKey{d.Src, d.Dst, d.id}
	list := append(j.pieces[key], d)
	j.pieces[key] = list[max(0, len(list)-keptPieces):]
}

const keptPieces = 256

func (j *judge) policy(at *place, attacker *lab.Pod, p model.Packet) string {
	if !j.cluster.Allows(id(attacker), model.Egress, p) {
		return "the sender's policy denies it"
	}
	if at.pod != nil && !j.cluster.Allows(*at.pod, model.Ingress, p) {
		return "the receiver's policy denies it"
	}
	return ""
}

// allowed reports whether an attacker may open a flow.
func (j *judge) allowed(p model.Packet) bool {
	attacker := j.attackers[p.Src]
	if attacker == nil || !j.cluster.Allows(id(attacker), model.Egress, p) {
		return false
	}
	for _, o := range j.cluster.Pods {
		for _, a := range o.Status.PodIPs {
			if a.IP == p.Dst.String() {
				return j.cluster.Allows(model.WorkloadID(o.Namespace, o.Name), model.Ingress, p)
			}
		}
	}
	return true
}

// id is the endpoint of a pod.
func id(p *lab.Pod) model.EndpointID {
	namespace, name, _ := strings.Cut(p.Name(), "/")
	return model.WorkloadID(namespace, name)
}
